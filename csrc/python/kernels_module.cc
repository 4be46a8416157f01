#include "python/kernels_module.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "kernels/kernels.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {

namespace {

using Floats = py::array_t<float, py::array::forcecast>;
using Ints = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Isa = std::optional<std::string>;
using Range = std::optional<std::pair<int, int>>;

const Kernels &table(const Isa &isa) { return kernels(isa ? isa->c_str() : nullptr); }

void require(bool condition, const std::string &message) {
    if (!condition)
        throw py::value_error(message);
}

// A float array of one or two dimensions as rows; a view with a longer row stride is read in place,
// so that tests reach strides. Holds the array alive.
struct Rows {
    Rows(const char *name, Floats source) : array(std::move(source)) {
        require(array.ndim() == 1 || array.ndim() == 2, std::string(name) + ": expected one or two dimensions");
        require(array.size() > 0, std::string(name) + ": is empty");
        const bool matrix = array.ndim() == 2;
        if (array.strides(array.ndim() - 1) != sizeof(float) || (matrix && array.strides(0) % sizeof(float) != 0) ||
            (matrix && array.strides(0) < static_cast<py::ssize_t>(array.shape(1) * sizeof(float))))
            array = py::array_t<float, py::array::c_style | py::array::forcecast>(array);
        rows = matrix ? static_cast<int>(array.shape(0)) : 1;
        n = static_cast<int>(array.shape(array.ndim() - 1));
        ld = matrix ? array.strides(0) / static_cast<py::ssize_t>(sizeof(float)) : n;
    }
    const float *data() const { return array.data(); }
    void expect(const char *name, int want_rows, int want_n) const {
        require(rows == want_rows && n == want_n, std::string(name) + ": expected [" + std::to_string(want_rows) +
                                                      ", " + std::to_string(want_n) + "], got [" +
                                                      std::to_string(rows) + ", " + std::to_string(n) + "]");
    }

    Floats array;
    int rows, n;
    int64_t ld;
};

py::array_t<float> make(int rows, int n) { return py::array_t<float>({rows, n}); }

py::array_t<float> copy(const Rows &source) {
    py::array_t<float> out = make(source.rows, source.n);
    for (int r = 0; r < source.rows; ++r)
        std::copy_n(source.data() + r * source.ld, source.n, out.mutable_data(r, 0));
    return out;
}

Scheme parse_scheme(const std::string &name) {
    const char *const names[] = {"f32", "bf16", "int8", "int4"};
    for (int i = 0; i < 4; ++i)
        if (name == names[i])
            return static_cast<Scheme>(i);
    throw py::value_error("scheme: '" + name + "' is none of f32, bf16, int8, int4");
}

bool packed(Scheme scheme) { return scheme == Scheme::int8 || scheme == Scheme::int4; }

void check_group(int k, int group) {
    require(group == 32 || group == 64 || group == 128, "group: " + std::to_string(group) + " is none of 32, 64, 128");
    require(k % group == 0, "k: " + std::to_string(k) + " is no multiple of the group " + std::to_string(group));
}

// A stored matrix in a contiguous array of any type, checked against its size.
struct Stored {
    Stored(py::array bytes, const std::string &scheme, int n, int k, int group)
        : array(py::array::ensure(std::move(bytes), py::array::c_style)),
          w{nullptr, parse_scheme(scheme), n, k, group} {
        require(n > 0 && k > 0, "n, k: must be positive");
        int64_t want = int64_t(n) * k * (w.scheme == Scheme::f32 ? 4 : 2);
        if (packed(w.scheme)) {
            check_group(k, group);
            const int64_t tiles = (n + kTileRows - 1) / kTileRows, code_bytes = w.scheme == Scheme::int4 ? 8 : 16;
            want = tiles * (k / group) * (32 + group * code_bytes);
        } else {
            require(group == 0, "group: must be 0 for " + scheme);
        }
        require(array.nbytes() == want,
                "data: expected " + std::to_string(want) + " bytes, got " + std::to_string(array.nbytes()));
        w.data = array.data();
    }
    int tiles() const { return (w.n + kTileRows - 1) / kTileRows; }

    py::array array;
    Matrix w;
};

// Activation rows, with codes when the weights are packed.
struct Prepared {
    Prepared(const Kernels &kernel, const Matrix &w, const Rows &x) {
        require(x.n == w.k, "x: expected rows of " + std::to_string(w.k) + ", got " + std::to_string(x.n));
        a = {x.data(), static_cast<int>(x.ld), nullptr, nullptr, nullptr, x.rows, w.k, w.group};
        if (!w.group)
            return;
        const size_t groups = static_cast<size_t>(x.rows) * (w.k / w.group);
        q.resize(static_cast<size_t>(x.rows) * w.k);
        scale.resize(groups);
        sum.resize(groups);
        kernel.quantize(x.data(), x.ld, x.rows, w.k, w.group, q.data(), scale.data(), sum.data());
        a.q = q.data();
        a.scale = scale.data();
        a.sum = sum.data();
    }

    Activations a;
    std::vector<int8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> sum;
};

MatmulCall make_call(const Stored &stored, const Prepared &x, const std::optional<Ints> &index, const Range &tiles) {
    MatmulCall call{stored.w, x.a, nullptr, x.a.rows, nullptr, 0, 0, stored.tiles()};
    if (index) {
        require(index->ndim() == 1, "index: expected one dimension");
        for (py::ssize_t i = 0; i < index->size(); ++i)
            require(index->data()[i] >= 0 && index->data()[i] < x.a.rows, "index: out of range");
        call.index = index->data();
        call.rows = static_cast<int>(index->size());
    }
    if (tiles) {
        require(0 <= tiles->first && tiles->first <= tiles->second && tiles->second <= stored.tiles(),
                "tiles: out of range");
        call.tile0 = tiles->first;
        call.tile1 = tiles->second;
    }
    return call;
}

py::array_t<float> matmul(const Isa &isa, py::array data, const std::string &scheme, int n, int k, int group, Floats x,
                          const std::optional<Ints> &index, const Range &tiles) {
    const Kernels &kernel = table(isa);
    const Stored stored(std::move(data), scheme, n, k, group);
    const Rows rows("x", std::move(x));
    const Prepared prepared(kernel, stored.w, rows);
    MatmulCall call = make_call(stored, prepared, index, tiles);
    py::array_t<float> y = make(call.rows, n);
    std::fill_n(y.mutable_data(), y.size(), 0.0f); // columns outside `tiles` stay zero
    call.y = y.mutable_data();
    call.ldy = n;
    kernel.matmul(call);
    return y;
}

py::tuple head_stats(const Isa &isa, py::array data, const std::string &scheme, int n, int k, int group, Floats x,
                     int valid, int banned, const std::optional<Ints> &index, const Range &tiles) {
    const Kernels &kernel = table(isa);
    const Stored stored(std::move(data), scheme, n, k, group);
    const Rows rows("x", std::move(x));
    require(0 <= valid && valid <= n, "valid: out of range");
    const Prepared prepared(kernel, stored.w, rows);
    const MatmulCall call = make_call(stored, prepared, index, tiles);
    std::vector<float> scratch(static_cast<size_t>(head_scratch_floats(call.rows)));
    std::vector<HeadStats> stats(static_cast<size_t>(call.rows));
    kernel.head_stats(call, valid, banned, scratch.data(), stats.data());
    py::array_t<int> argmax(call.rows);
    py::array_t<float> max(call.rows), sum(call.rows);
    for (int r = 0; r < call.rows; ++r) {
        argmax.mutable_data()[r] = stats[r].argmax;
        max.mutable_data()[r] = stats[r].max;
        sum.mutable_data()[r] = stats[r].sum_exp;
    }
    return py::make_tuple(argmax, max, sum);
}

py::tuple quantize(const Isa &isa, Floats x, int group) {
    const Rows rows("x", std::move(x));
    check_group(rows.n, group);
    const int groups = rows.n / group;
    py::array_t<int8_t> q({rows.rows, rows.n});
    py::array_t<float> scale = make(rows.rows, groups);
    py::array_t<int32_t> sum({rows.rows, groups});
    table(isa).quantize(rows.data(), rows.ld, rows.rows, rows.n, group, q.mutable_data(), scale.mutable_data(),
                        sum.mutable_data());
    return py::make_tuple(q, scale, sum);
}

py::array_t<float> dequantize_row(const Isa &isa, py::array data, const std::string &scheme, int n, int k, int group,
                                  int row) {
    const Stored stored(std::move(data), scheme, n, k, group);
    require(0 <= row && row < n, "row: out of range");
    py::array_t<float> out(k);
    table(isa).dequantize_row(stored.w, row, out.mutable_data());
    return out;
}

py::array_t<float> rmsnorm(const Isa &isa, Floats x, Floats w, float offset, float eps) {
    const Rows rows("x", std::move(x)), weight("w", std::move(w));
    weight.expect("w", 1, rows.n);
    py::array_t<float> out = make(rows.rows, rows.n);
    table(isa).rmsnorm(rows.data(), rows.ld, weight.data(), offset, eps, rows.rows, rows.n, out.mutable_data(), rows.n);
    return out;
}

py::array_t<float> l2norm(const Isa &isa, Floats x, int heads, float scale) {
    const Rows rows("x", std::move(x));
    require(heads > 0 && rows.n % heads == 0, "heads: does not divide the row");
    py::array_t<float> out = make(rows.rows, rows.n);
    table(isa).l2norm(rows.data(), rows.ld, rows.rows, heads, rows.n / heads, scale, out.mutable_data(), rows.n);
    return out;
}

py::array_t<float> silu_mul(const Isa &isa, Floats gate, Floats up) {
    const Rows g("gate", std::move(gate)), u("up", std::move(up));
    u.expect("up", g.rows, g.n);
    py::array_t<float> out = make(g.rows, g.n);
    table(isa).silu_mul(g.data(), g.ld, u.data(), u.ld, g.rows, g.n, out.mutable_data(), g.n);
    return out;
}

py::array_t<float> sigmoid_mul(const Isa &isa, Floats x, Floats gate) {
    const Rows rows("x", std::move(x)), g("gate", std::move(gate));
    g.expect("gate", rows.rows, rows.n);
    py::array_t<float> out = copy(rows);
    table(isa).sigmoid_mul(out.mutable_data(), rows.n, g.data(), g.ld, rows.rows, rows.n);
    return out;
}

py::array_t<float> gated_norm(const Isa &isa, Floats o, Floats z, Floats w, float eps) {
    const Rows rows("o", std::move(o)), gate("z", std::move(z)), weight("w", std::move(w));
    gate.expect("z", rows.rows, rows.n);
    require(weight.rows == 1 && rows.n % weight.n == 0, "w: does not divide the row");
    py::array_t<float> out = copy(rows);
    table(isa).gated_norm(out.mutable_data(), rows.n, gate.data(), gate.ld, weight.data(), eps, rows.rows,
                          rows.n / weight.n, weight.n);
    return out;
}

py::array_t<float> conv(const Isa &isa, Floats ring, Floats block, Floats w, std::optional<Floats> right,
                        const Range &channels) {
    using Dense = py::array_t<float, py::array::c_style | py::array::forcecast>; // these three have no stride
    const Rows past("ring", Dense(ring)), rows("block", std::move(block)), taps("w", Dense(w));
    const int n = rows.n;
    require(taps.rows == n && taps.n >= 2, "w: expected [channels, taps] with taps >= 2");
    past.expect("ring", taps.n - 1, n);
    std::optional<Rows> ahead;
    if (right) {
        ahead.emplace("right", Dense(*right));
        ahead->expect("right", n, taps.n - 1);
    }
    const auto [c0, c1] = channels.value_or(std::make_pair(0, n));
    require(0 <= c0 && c0 <= c1 && c1 <= n, "channels: out of range");
    py::array_t<float> out = make(rows.rows, n);
    std::fill_n(out.mutable_data(), out.size(), 0.0f); // channels outside the range stay zero
    table(isa).conv(past.data(), rows.data(), rows.ld, taps.data(), ahead ? ahead->data() : nullptr, rows.rows, n,
                    taps.n, c0, c1, out.mutable_data(), n);
    return out;
}

// One DeltaNet head with everything that its description points to.
struct Head {
    Head(Floats q_, Floats k_, Floats v_, Floats g_, Floats beta_, Floats state_)
        : q("q", std::move(q_)), k("k", std::move(k_)), v("v", std::move(v_)), g("g", std::move(g_)),
          beta("beta", std::move(beta_)), state(copy(Rows("state", std::move(state_)))), o(make(q.rows, v.n)),
          scratch(static_cast<size_t>(delta_scratch_floats(q.rows, q.n, v.n))) {
        k.expect("k", q.rows, q.n);
        v.expect("v", q.rows, v.n);
        require(g.rows * g.n == q.rows, "g: expected one value per row");
        require(beta.rows == g.rows && beta.n == g.n && beta.ld == g.ld, "beta: expected the shape and strides of g");
        require(state.shape(0) == q.n && state.shape(1) == v.n, "state: expected [dk, dv]");
        require(k.ld == q.ld, "k: must have the row stride of q");
        d = {q.n,
             v.n,
             q.rows,
             q.data(),
             k.data(),
             v.data(),
             q.ld,
             v.ld,
             g.data(),
             beta.data(),
             g.rows == 1 ? 1 : g.ld,
             state.mutable_data(),
             o.mutable_data(),
             int64_t(v.n),
             scratch.data()};
    }

    Rows q, k, v, g, beta;
    py::array_t<float> state, o;
    std::vector<float> scratch;
    DeltaHead d;
};

py::tuple delta(void (*Kernels::*operation)(const DeltaHead &), const Isa &isa, Floats q, Floats k, Floats v, Floats g,
                Floats beta, Floats state) {
    const Head head(std::move(q), std::move(k), std::move(v), std::move(g), std::move(beta), std::move(state));
    (table(isa).*operation)(head.d);
    return py::make_tuple(head.o, head.state);
}

py::array_t<float> delta_preview(const Isa &isa, Floats q, Floats k, Floats v, Floats beta, Floats state,
                                 float logit_scale, float history_logit, float history_scale, bool value_beta) {
    Head head(std::move(q), std::move(k), std::move(v), beta, beta, std::move(state));
    head.d.g = nullptr; // a preview has no decay
    table(isa).delta_preview({head.d, logit_scale, history_logit, history_scale, value_beta});
    return head.o;
}

py::array_t<float> attention(const Isa &isa, Floats q, Floats k, Floats v, bool causal, float scale) {
    const Rows query("q", std::move(q)), key("k", std::move(k)), value("v", std::move(v));
    require(key.rows >= query.rows && key.n == query.n, "k: expected [past + rows, head_dim]");
    value.expect("v", key.rows, key.n);
    require(key.ld == value.ld, "v: must have the row stride of k");
    py::array_t<float> out = make(query.rows, query.n);
    table(isa).attention({query.rows, query.n, query.data(), query.ld, key.data(), value.data(), key.ld,
                          key.rows - query.rows, causal, scale, out.mutable_data(), query.n});
    return out;
}

void register_products(py::module_ &m) {
    m.def(
        "matmul", &matmul, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "x"_a, "index"_a = py::none(),
        "tiles"_a = py::none(),
        "x [rows, k] times the stored matrix [n, k] transposed: float32 [rows or len(index), n]. Packed weights take\n"
        "x through int8 codes. Columns outside `tiles` (first, last) are zero. ValueError on a wrong size.");
    m.def("head_stats", &head_stats, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "x"_a, "valid"_a,
          "banned"_a = -1, "index"_a = py::none(), "tiles"_a = py::none(),
          "(argmax, max, sum of exp(logit - max)) of the products, per row, over ids below `valid` except `banned`.");
    m.def("quantize", &quantize, "isa"_a, "x"_a, "group"_a,
          "(codes int8 [rows, k], scale [rows, k/group], sum of codes [rows, k/group]) of x.");
    m.def("dequantize_row", &dequantize_row, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "row"_a,
          "One row of the stored matrix as float32 [k].");
}

void register_row_operations(py::module_ &m) {
    m.def("rmsnorm", &rmsnorm, "isa"_a, "x"_a, "w"_a, "offset"_a, "eps"_a,
          "x * rsqrt(mean(x^2) + eps) * (w + offset) per row.");
    m.def("l2norm", &l2norm, "isa"_a, "x"_a, "heads"_a, "scale"_a,
          "u * rsqrt(sum(u^2) + 1e-6) * scale per head u of a row.");
    m.def("silu_mul", &silu_mul, "isa"_a, "gate"_a, "up"_a, "silu(gate) * up.");
    m.def("sigmoid_mul", &sigmoid_mul, "isa"_a, "x"_a, "gate"_a, "x * sigmoid(gate).");
    m.def("gated_norm", &gated_norm, "isa"_a, "o"_a, "z"_a, "w"_a, "eps"_a,
          "rmsnorm(o) * w * silu(z) per head of width len(w).");
    m.def("conv", &conv, "isa"_a, "ring"_a, "block"_a, "w"_a, "right"_a = py::none(), "channels"_a = py::none(),
          "Depthwise convolution of [ring; block] and SiLU: w [channels, taps], right [channels, taps-1] or None.\n"
          "Channels outside `channels` (first, last) are zero.");
}

void register_mixers(py::module_ &m) {
    m.def(
        "delta_commit",
        [](const Isa &isa, Floats q, Floats k, Floats v, Floats g, Floats beta, Floats state) {
            return delta(&Kernels::delta_commit, isa, q, k, v, g, beta, state);
        },
        "isa"_a, "q"_a, "k"_a, "v"_a, "g"_a, "beta"_a, "state"_a,
        "(o [rows, dv], new state [dk, dv]) of the gated delta rule, token by token.");
    m.def(
        "delta_closed",
        [](const Isa &isa, Floats q, Floats k, Floats v, Floats g, Floats beta, Floats state) {
            return delta(&Kernels::delta_closed, isa, q, k, v, g, beta, state);
        },
        "isa"_a, "q"_a, "k"_a, "v"_a, "g"_a, "beta"_a, "state"_a, "The same in closed form.");
    m.def("delta_preview", &delta_preview, "isa"_a, "q"_a, "k"_a, "v"_a, "beta"_a, "state"_a, "logit_scale"_a,
          "history_logit"_a, "history_scale"_a, "value_beta"_a = false,
          "o [rows, dv] of the softmax mixer over the block's rows and the history.");
    m.def("attention", &attention, "isa"_a, "q"_a, "k"_a, "v"_a, "causal"_a, "scale"_a,
          "o [rows, head_dim] of one query head; k, v [past + rows, head_dim].");
}

} // namespace

void register_kernels(py::module_ &m) {
    py::module_ sub = m.def_submodule("kernels", "Every kernel for a named instruction set (None: the best).");
    register_products(sub);
    register_row_operations(sub);
    register_mixers(sub);
}

} // namespace clover

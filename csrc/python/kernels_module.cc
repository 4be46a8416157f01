#include "python/kernels_module.h"

#include <vector>

#include "python/kernels_arrays.h"

using namespace pybind11::literals;

namespace clover {

namespace {

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

py::array_t<float> gelu_mul(const Isa &isa, Floats gate, Floats up) {
    const Rows g("gate", std::move(gate)), u("up", std::move(up));
    u.expect("up", g.rows, g.n);
    py::array_t<float> out = make(g.rows, g.n);
    table(isa).gelu_mul(g.data(), g.ld, u.data(), u.ld, g.rows, g.n, out.mutable_data(), g.n);
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
    table(isa).delta_preview({head.d, head.d.rows, logit_scale, history_logit, history_scale, value_beta});
    return head.o;
}

py::array_t<float> attention(const Isa &isa, Floats q, Floats k, Floats v, bool causal, float scale,
                             const std::string &format, int window) {
    const Rows query("q", std::move(q)), key("k", std::move(k)), value("v", std::move(v));
    const int head_dim = key.n, heads = query.n / head_dim, past = key.rows - query.rows;
    require(key.rows >= query.rows && query.n % head_dim == 0, "k: expected [past + rows, head_dim]");
    value.expect("v", key.rows, head_dim);
    require(format == "f32" || format == "f16" || format == "int8", "format: none of f32, f16, int8");
    require(window >= 0, "window: negative");
    const KvFormat kv = format == "f32" ? KvFormat::f32 : format == "f16" ? KvFormat::f16 : KvFormat::int8;
    const int64_t row = kv_bytes(kv, head_dim);
    std::vector<uint8_t> keys(static_cast<size_t>(key.rows * row)), values(keys.size());
    for (int r = 0; r < key.rows; ++r) {
        store_kv(kv, key.data() + r * key.ld, head_dim, keys.data() + r * row);
        store_kv(kv, value.data() + r * value.ld, head_dim, values.data() + r * row);
    }
    py::array_t<float> out = make(query.rows, query.n);
    std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(query.rows, heads, head_dim)));
    table(isa).attention({query.rows, heads, head_dim, query.data(), query.ld, kv, keys.data(), values.data(), row,
                          past, causal, 0, query.rows, scale, out.mutable_data(), query.n, scratch.data(), window});
    return out;
}

void register_row_operations(py::module_ &m) {
    m.def("rmsnorm", &rmsnorm, "isa"_a, "x"_a, "w"_a, "offset"_a, "eps"_a,
          "x * rsqrt(mean(x^2) + eps) * (w + offset) per row.");
    m.def("l2norm", &l2norm, "isa"_a, "x"_a, "heads"_a, "scale"_a,
          "u * rsqrt(sum(u^2) + 1e-6) * scale per head u of a row.");
    m.def("silu_mul", &silu_mul, "isa"_a, "gate"_a, "up"_a, "silu(gate) * up.");
    m.def("gelu_mul", &gelu_mul, "isa"_a, "gate"_a, "up"_a, "gelu(gate) * up, gelu in its tanh form.");
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
    m.def("attention", &attention, "isa"_a, "q"_a, "k"_a, "v"_a, "causal"_a, "scale"_a, "format"_a = "f32",
          "window"_a = 0,
          "o [rows, heads * head_dim] of the query heads of one key/value head; k, v [past + rows, head_dim], kept in\n"
          "`format`: f32, f16 or int8. A row sees the `window` nearest keys; 0: all.");
}

} // namespace

void register_kernels(py::module_ &m) {
    py::module_ sub = m.def_submodule("kernels", "Every kernel for a named instruction set (None: the best).");
    register_products(sub);
    register_row_operations(sub);
    register_mixers(sub);
}

} // namespace clover

// Bindings of the products with stored matrices.
#include <vector>

#include "model/weights.h"
#include "python/kernels_arrays.h"

using namespace pybind11::literals;

namespace clover {

namespace {

using Codes = py::array_t<int8_t, py::array::c_style>;
using Codebook = std::optional<Codes>; // [16]

Scheme parse_scheme(const std::string &name) {
    if (const std::optional<Scheme> scheme = scheme_named(name))
        return *scheme;
    throw py::value_error("scheme: '" + name + "' is none of f32, bf16, int8, int4, codebook4, int3");
}

bool packed(Scheme scheme) { return scheme != Scheme::f32 && scheme != Scheme::bf16; }

int64_t code_bytes(Scheme scheme) { // of a column of a tile
    return scheme == Scheme::int8 ? 16 : scheme == Scheme::int3 ? 6 : 8;
}

void check_group(int k, int group) {
    require(group == 32 || group == 64 || group == 128, "group: " + std::to_string(group) + " is none of 32, 64, 128");
    require(k % group == 0, "k: " + std::to_string(k) + " is no multiple of the group " + std::to_string(group));
}

// A stored matrix in a contiguous array of any type, checked against its size.
struct Stored {
    Stored(py::array bytes, const std::string &scheme, int n, int k, int group, const Codebook &values)
        : array(py::array::ensure(std::move(bytes), py::array::c_style)), codebook(values.value_or(Codes())),
          w{nullptr, parse_scheme(scheme), n, k, group} {
        require(n > 0 && k > 0, "n, k: must be positive");
        require((w.scheme == Scheme::codebook4) == values.has_value(), "codebook: only and always with codebook4");
        require(!values || values->size() == 16, "codebook: expected 16 values");
        int64_t want = int64_t(n) * k * (w.scheme == Scheme::f32 ? 4 : 2);
        if (packed(w.scheme)) {
            check_group(k, group);
            require(w.scheme != Scheme::int3 || group == 64, "group: int3 has groups of 64");
            want = int64_t(tiles()) * (k / group) * (32 + group * code_bytes(w.scheme));
        } else {
            require(group == 0, "group: must be 0 for " + scheme);
        }
        require(array.nbytes() == want,
                "data: expected " + std::to_string(want) + " bytes, got " + std::to_string(array.nbytes()));
        w.data = array.data();
        w.codebook = values ? codebook.data() : nullptr;
    }
    int tiles() const { return (w.n + kTileRows - 1) / kTileRows; }

    py::array array;
    Codes codebook;
    Matrix w;
};

// Activation rows, with codes when the weights are packed.
struct Prepared {
    Prepared(const Kernels &kernel, const Matrix &w, const Rows &x) {
        require(x.n == w.k, "x: expected rows of " + std::to_string(w.k) + ", got " + std::to_string(x.n));
        const int block = block_of(w.k);
        a = {x.data(), static_cast<int>(x.ld), nullptr, padded_row(w.k), nullptr, nullptr, x.rows, w.k, block};
        if (!w.group)
            return;
        const int64_t count = int64_t(x.rows) * w.k;
        q.resize(static_cast<size_t>(x.rows) * padded_row(w.k));
        scale.resize(static_cast<size_t>(count / block));
        start.resize(static_cast<size_t>(count / w.group));
        std::vector<int32_t> sum32(static_cast<size_t>(count / 32));
        kernel.quantize(x.data(), x.ld, x.rows, w.k, block, q.data(), padded_row(w.k), scale.data(), sum32.data());
        start_values(sum32.data(), static_cast<int>(count / w.group), w.group, kernel.zero_point[int(w.scheme)],
                     start.data());
        a.q = q.data();
        a.scale = scale.data();
        a.start = start.data();
    }

    Activations a;
    std::vector<int8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> start;
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
                          const std::optional<Ints> &index, const Range &tiles, const Codebook &codebook) {
    const Kernels &kernel = table(isa);
    const Stored stored(std::move(data), scheme, n, k, group, codebook);
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

using Penalties = std::vector<std::pair<int, float>>;

// (argmax, max, sum_exp), each [stripes, rows], and the logits [rows, stripes * kHeadStripe] or None
py::tuple head(const Isa &isa, py::array data, const std::string &scheme, int n, int k, int group, Floats x, int valid,
               int banned, float inverse_temperature, float repetition, const Penalties &penalties,
               const std::optional<Ints> &index, const Range &tiles, const Codebook &codebook, bool with_logits,
               float softcap) {
    const Kernels &kernel = table(isa);
    const Stored stored(std::move(data), scheme, n, k, group, codebook);
    const Rows rows("x", std::move(x));
    require(0 <= valid && valid <= n, "valid: out of range");
    std::vector<HeadRule::Penalty> list;
    for (const auto &[id, subtract] : penalties)
        list.push_back({id, subtract});
    const HeadRule rule{valid, banned, inverse_temperature, repetition, list.data(), int(list.size()), softcap};
    const Prepared prepared(kernel, stored.w, rows);
    MatmulCall call = make_call(stored, prepared, index, tiles);
    const int stripes = head_stripes(call.tile1 - call.tile0);
    std::vector<float> scratch(static_cast<size_t>(head_scratch_floats(call.rows)));
    std::vector<HeadStats> stats(static_cast<size_t>(stripes * call.rows));
    kernel.head_stats(call, rule, scratch.data(), stats.data());
    py::array_t<int> argmax({stripes, call.rows});
    py::array_t<float> max({stripes, call.rows}), sum({stripes, call.rows});
    for (size_t i = 0; i < stats.size(); ++i) {
        argmax.mutable_data()[i] = stats[i].argmax;
        max.mutable_data()[i] = stats[i].max;
        sum.mutable_data()[i] = stats[i].sum_exp;
    }
    if (!with_logits)
        return py::make_tuple(argmax, max, sum, py::none());
    py::array_t<float> logits = make(call.rows, stripes * kHeadStripe);
    for (int s = 0; s < stripes; ++s, call.tile0 += kHeadStripe / kTileRows) {
        kernel.head_logits(call, rule, scratch.data());
        for (int r = 0; r < call.rows; ++r)
            std::copy_n(scratch.data() + r * kHeadStripe, kHeadStripe, logits.mutable_data(r, s * kHeadStripe));
    }
    return py::make_tuple(argmax, max, sum, logits);
}

py::tuple quantize(const Isa &isa, Floats x) {
    const Rows rows("x", std::move(x));
    require(rows.n % 32 == 0, "x: " + std::to_string(rows.n) + " columns are no multiple of 32");
    const int block = block_of(rows.n);
    py::array_t<int8_t> q({rows.rows, rows.n});
    py::array_t<float> scale = make(rows.rows, rows.n / block);
    py::array_t<int32_t> sum32({rows.rows, rows.n / 32});
    table(isa).quantize(rows.data(), rows.ld, rows.rows, rows.n, block, q.mutable_data(), rows.n, scale.mutable_data(),
                        sum32.mutable_data());
    return py::make_tuple(q, scale, sum32);
}

py::array_t<float> dequantize_row(const Isa &isa, py::array data, const std::string &scheme, int n, int k, int group,
                                  int row, const Codebook &codebook) {
    const Stored stored(std::move(data), scheme, n, k, group, codebook);
    require(0 <= row && row < n, "row: out of range");
    py::array_t<float> out(k);
    table(isa).dequantize_row(stored.w, row, out.mutable_data());
    return out;
}

} // namespace

void register_products(py::module_ &m) {
    m.def(
        "matmul", &matmul, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "x"_a, "index"_a = py::none(),
        "tiles"_a = py::none(), "codebook"_a = py::none(),
        "x [rows, k] times the stored matrix [n, k] transposed: float32 [rows or len(index), n]. Packed weights take\n"
        "x through int8 codes. Columns outside `tiles` (first, last) are zero. ValueError on a wrong size.");
    m.def(
        "head", &head, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "x"_a, "valid"_a, "banned"_a = -1,
        "inverse_temperature"_a = 1.0f, "repetition"_a = 1.0f, "penalties"_a = Penalties{}, "index"_a = py::none(),
        "tiles"_a = py::none(), "codebook"_a = py::none(), "with_logits"_a = false, "softcap"_a = 0.0f,
        "(argmax, max, sum of exp((logit - max) * inverse_temperature)), each [stripes, rows], over ids below\n"
        "`valid` except `banned`, and the logits [rows, stripes * 192] or None; penalties: (id, subtract), ascending;\n"
        "softcap: logits z become softcap * tanh(z / softcap) first (0: they stay).");
    m.def("quantize", &quantize, "isa"_a, "x"_a,
          "(codes int8 [rows, k], scale [rows, k/block], sums of 32 codes [rows, k/32]) of x; block is the largest of\n"
          "128, 64 and 32 that divides k.");
    m.def("dequantize_row", &dequantize_row, "isa"_a, "data"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "row"_a,
          "codebook"_a = py::none(), "One row of the stored matrix as float32 [k].");
}

} // namespace clover

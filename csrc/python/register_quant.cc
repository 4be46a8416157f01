// The submodule `quant`: floats to the stored bytes of a scheme. clover_edge.quant is its face.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "base/error.h"
#include "python/bindings.h"
#include "quant/quantise.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {
namespace {

using quant::Factor;
using quant::Format;
using quant::How;
using quant::Method;
using quant::Rows;
using quant::Source;
using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Weights = py::array_t<float, py::array::c_style>;

constexpr std::pair<const char *, Method> kMethods[] = {{"absmax", Method::absmax},
                                                        {"rtn", Method::rtn},
                                                        {"hqq", Method::hqq},
                                                        {"weighted", Method::weighted},
                                                        {"gptq", Method::gptq}};

Method method_named(const std::string &name) {
    for (const auto &[known, method] : kMethods)
        if (name == known)
            return method;
    throw ArgumentError("method: unknown: " + name);
}

Rows rows_from(const py::array &x) {
    if (!(x.flags() & py::array::c_style) || (x.ndim() != 1 && x.ndim() != 2) || x.size() < 1)
        throw ArgumentError("rows: expected a contiguous vector or matrix");
    Rows rows{x.data(), Source::f32, x.ndim() == 2 ? x.shape(0) : 1, x.shape(x.ndim() - 1)};
    if (py::isinstance<py::array_t<float>>(x))
        return rows;
    if (x.itemsize() != 2 || (x.dtype().kind() != 'f' && x.dtype().kind() != 'u'))
        throw ArgumentError("rows: expected float32, float16, or bfloat16 as uint16");
    rows.type = x.dtype().kind() == 'f' ? Source::f16 : Source::bf16;
    return rows;
}

Format format_from(const std::string &name, int group, const std::vector<int8_t> &codebook, const Rows &rows) {
    const std::optional<Scheme> scheme = scheme_named(name);
    if (!scheme)
        throw ArgumentError("scheme: unknown: " + name);
    const bool floats = *scheme == Scheme::f32 || *scheme == Scheme::bf16;
    const bool allowed = *scheme == Scheme::int3 ? group == 64 : group == 32 || group == 64 || group == 128;
    if (floats ? group != 0 : !allowed || rows.k % group != 0)
        throw ArgumentError("group: " + std::to_string(group) + " does not fit " + name + " of " +
                            std::to_string(rows.k) + " columns");
    if (codebook.size() != (*scheme == Scheme::codebook4 ? 16 : 0))
        throw ArgumentError("codebook: " + std::to_string(codebook.size()) + " values");
    return {*scheme, group, codebook.empty() ? nullptr : codebook.data()};
}

int64_t stored_bytes(const Rows &rows, const Format &format) {
    Matrix w{nullptr, format.scheme, 0, 0, format.group};
    if (rows.n > INT32_MAX - kTileRows || rows.k > INT32_MAX)
        throw ArgumentError("rows: too many");
    w.n = int(rows.n);
    w.k = int(rows.k);
    return matrix_bytes(w);
}

// Threads and an instruction set that stay between calls.
class Encoder {
  public:
    Encoder(int threads, const std::optional<std::string> &isa)
        : pool_(threads), coder_(quant::coder(isa ? isa->c_str() : nullptr)) {}

    int threads() const { return pool_.size(); }
    std::string isa() const { return coder_.name; }

    py::tuple encode(const py::array &x, Bytes out, const std::string &scheme, int group,
                     const std::vector<int8_t> &codebook, const std::string &method,
                     const std::optional<Weights> &weights, const Factor *factor) {
        const Rows rows = rows_from(x);
        const Format format = format_from(scheme, group, codebook, rows);
        const How how{method_named(method), weights ? weights->data() : nullptr, factor};
        if (out.ndim() != 1 || out.size() != stored_bytes(rows, format))
            throw ArgumentError("out: " + std::to_string(out.size()) + " bytes, " +
                                std::to_string(stored_bytes(rows, format)) + " expected");
        if (how.method == Method::weighted && (!weights || weights->ndim() != 1 || weights->size() != rows.k))
            throw ArgumentError("weights: one for each of the " + std::to_string(rows.k) + " columns is needed");
        if (how.method == Method::gptq && (!factor || factor->k() != rows.k))
            throw ArgumentError("factor: one of " + std::to_string(rows.k) + " columns is needed");
        uint8_t *to = out.mutable_data();
        quant::Loss loss;
        {
            const py::gil_scoped_release released;
            loss = quant::encode(coder_, pool_, rows, format, how, to);
        }
        return py::make_tuple(loss.signal, loss.noise, loss.largest, loss.worst);
    }

    std::unique_ptr<Factor> factor(const py::array &hessian, double damping) {
        if (hessian.ndim() != 2 || hessian.shape(0) != hessian.shape(1) || hessian.size() < 1 ||
            !(hessian.flags() & py::array::c_style))
            throw ArgumentError("hessian: expected a contiguous square matrix");
        if (py::isinstance<py::array_t<float>>(hessian))
            return make_factor<float>(hessian, damping);
        if (py::isinstance<py::array_t<double>>(hessian))
            return make_factor<double>(hessian, damping);
        throw ArgumentError("hessian: expected float32 or float64");
    }

  private:
    template <class Real> std::unique_ptr<Factor> make_factor(const py::array &hessian, double damping) {
        const auto *h = static_cast<const Real *>(hessian.data());
        const int64_t k = hessian.shape(0);
        const py::gil_scoped_release released;
        return std::make_unique<Factor>(pool_, h, k, damping);
    }

    ThreadPool pool_;
    const quant::Coder &coder_;
};

} // namespace

void register_quant(py::module_ &m) {
    py::module_ sub = m.def_submodule("quant", "Floats to stored bytes.");
    py::class_<Factor>(sub, "Factor", "What error feedback needs of a Hessian [k, k].")
        .def_property_readonly("columns", &Factor::k);
    py::class_<Encoder>(sub, "Encoder", "Threads and vector instructions that quantise.")
        .def(py::init<int, const std::optional<std::string> &>(), "threads"_a = 0, "isa"_a = py::none())
        .def_property_readonly("threads", &Encoder::threads)
        .def_property_readonly("isa", &Encoder::isa)
        .def("encode", &Encoder::encode, "rows"_a, "out"_a.noconvert(), py::kw_only(), "scheme"_a, "group"_a,
             "codebook"_a, "method"_a, "weights"_a = py::none(), "factor"_a = py::none(),
             "Fills out [stored bytes] from rows [n, k] (float32, float16, or bfloat16 as uint16) and returns\n"
             "(sum of squares, sum of squared errors, largest magnitude, largest error). ArgumentError when a value\n"
             "is not finite or a scale is beyond float16.")
        .def("factor", &Encoder::factor, "hessian"_a, "damping"_a,
             "The factor of a symmetric matrix plus damping times the mean of its diagonal on the diagonal.\n"
             "ArgumentError when it is not positive definite.");
}

} // namespace clover

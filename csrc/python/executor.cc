#include "python/executor.h"

#include <utility>

#include "base/error.h"

namespace py = pybind11;

namespace clover {
namespace {

using Shape = std::vector<py::ssize_t>;

py::object attribute(const py::object &external, const char *name) {
    if (!py::hasattr(external, name))
        throw ArgumentError(std::string("external: has no \"") + name + "\"");
    return external.attr(name);
}

std::string text(const Shape &shape) {
    std::string s = "[";
    for (size_t i = 0; i < shape.size(); i++)
        s += (i ? ", " : "") + std::to_string(shape[i]);
    return s + "]";
}

// Memory of ours that nobody may write to, nor keep.
py::array_t<float> view(const float *data, const Shape &shape) {
    py::array_t<float> array(shape, data, py::none());
    array.attr("setflags")(py::arg("write") = false);
    return array;
}

py::array_t<int64_t> copy(const std::vector<int64_t> &values) {
    return py::array_t<int64_t>(py::ssize_t(values.size()), values.data());
}

// Of what `external` returned; throws ArgumentError naming what does not fit.
const float *data_of(const std::string &name, const py::handle &value, const Shape &shape) {
    if (!py::isinstance<py::array>(value))
        throw ArgumentError("external: " + name + " is no array");
    const auto array = py::reinterpret_borrow<py::array>(value);
    const Shape found(array.shape(), array.shape() + array.ndim());
    if (!array.dtype().is(py::dtype::of<float>()) || !(array.flags() & py::array::c_style) || found != shape)
        throw ArgumentError("external: " + name + " is no contiguous float32 array of shape " + text(shape) +
                            " but one of " + std::string(py::str(array.dtype())) + " " + text(found));
    return static_cast<const float *>(array.data());
}

// A part of the state, where a call's result for it is written, and its name and shape.
struct Part {
    std::string name;
    Shape shape;
    float *to;
};

// What a call of n rows leaves: keys and values behind the p in front, and where it moves them, recurrent states.
std::vector<Part> parts_of(const Spec &s, State &state, int64_t past, py::ssize_t n, bool moves) {
    std::vector<Part> parts;
    for (size_t i = 0; i < s.layers.size(); i++) {
        const std::string number = std::to_string(i);
        if (s.layers[i] == LayerKind::attention) {
            const AttentionShape a = s.attention(int(i));
            const Shape shape = {n, a.kv_heads, a.head_dim};
            const int64_t at = past * state.kv_row_bytes(int(i));
            KvCache &kv = state.kv[i];
            parts.push_back({"kv." + number + ".k", shape, reinterpret_cast<float *>(kv.k.data() + at)});
            parts.push_back({"kv." + number + ".v", shape, reinterpret_cast<float *>(kv.v.data() + at)});
        } else if (moves) {
            DeltaState &delta = state.delta[i];
            parts.push_back(
                {"delta." + number + ".S", {s.delta_v_heads, s.delta_k_dim, s.delta_v_dim}, delta.S.data()});
            parts.push_back({"delta." + number + ".ring", {s.conv_taps - 1, s.conv_channels()}, delta.ring.data()});
        }
    }
    return parts;
}

} // namespace

PythonExecutor::PythonExecutor(const py::object &external, const Spec &spec)
    : spec_(spec), forward_(attribute(external, "forward")), head_(attribute(external, "head")) {}

PythonExecutor::~PythonExecutor() {
    const py::gil_scoped_acquire held; // whoever lets go of the model
    forward_ = head_ = logits_ = py::object();
}

py::dict PythonExecutor::caches(State &state, int64_t past) const {
    py::dict out;
    for (const Part &part : parts_of(spec_, state, 0, past, true))
        out[py::str(part.name)] = view(part.to, part.shape);
    return out;
}

void PythonExecutor::forward(const PassCall &call, State &state, float *hidden) {
    const py::gil_scoped_acquire held;
    const py::ssize_t n = py::ssize_t(call.ids.size());
    const py::object answer = forward_(call.commit ? "commit" : "preview", copy(call.ids), copy(call.positions),
                                       copy(call.sees_to), call.history_width, caches(state, call.past));
    if (!py::isinstance<py::tuple>(answer) || py::len(answer) != 2 || !py::isinstance<py::dict>(answer[py::int_(1)]))
        throw ArgumentError("external: forward() returns no pair of an array and a dictionary");
    const float *from = data_of("hidden", answer[py::int_(0)], {n, spec_.hidden_size});
    const py::dict changed = answer[py::int_(1)];
    const std::vector<Part> parts = parts_of(spec_, state, call.past, n, call.moves);
    std::vector<const float *> sources;
    for (const Part &part : parts) {
        if (!changed.contains(part.name.c_str()))
            throw ArgumentError("external: forward() returns no " + part.name);
        sources.push_back(data_of(part.name, changed[part.name.c_str()], part.shape));
    }
    for (size_t i = 0; i < parts.size(); i++) {
        py::ssize_t size = 1;
        for (py::ssize_t dim : parts[i].shape)
            size *= dim;
        std::copy_n(sources[i], size, parts[i].to);
    }
    std::copy_n(from, n * spec_.hidden_size, hidden);
}

const float *PythonExecutor::head(const float *hidden, int rows) {
    const py::gil_scoped_acquire held;
    logits_ = head_(view(hidden, {rows, spec_.hidden_size}));
    return data_of("logits", logits_, {rows, spec_.vocab_size});
}

} // namespace clover

// The class State: what one sequence carries, and copies of it.
#include <pybind11/numpy.h>

#include "python/bindings.h"
#include "python/engine.h"

namespace py = pybind11;

namespace clover {
namespace {

using Floats = py::array_t<float>;

Sequence snapshot(const Sequence &sequence) {
    const Lease lease(*sequence.engine);
    return {sequence.engine, sequence.state.snapshot()};
}

void restore(Sequence &sequence, const Sequence &from) {
    check_owner(*sequence.engine, from);
    const Lease lease(*sequence.engine);
    sequence.state.restore(from.state);
}

void truncate(Sequence &sequence, int64_t position) {
    const Lease lease(*sequence.engine);
    sequence.engine->model.truncate(sequence.state, position);
}

Floats copy(const Buffer<float> &from, std::vector<py::ssize_t> shape) {
    Floats out(std::move(shape));
    std::copy_n(from.data(), out.size(), out.mutable_data());
    return out;
}

// Stored keys or values [position, nkv, hd] as floats.
Floats copy_rows(const State &state, const Buffer<uint8_t> &from, const std::vector<py::ssize_t> &shape) {
    Floats out(shape);
    const int head_dim = int(shape[2]);
    const int64_t part = kv_bytes(state.format, head_dim);
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        load_kv(state.format, from.data() + i * part, head_dim, out.mutable_data() + i * head_dim);
    return out;
}

py::dict copy_state(const State &state, const Spec &s) {
    py::dict out;
    for (size_t i = 0; i < s.layers.size(); i++) {
        const std::string prefix = "layers." + std::to_string(i) + ".";
        if (s.layers[i] == LayerKind::attention) {
            const AttentionShape a = s.attention(int(i));
            const std::vector<py::ssize_t> shape = {py::ssize_t(state.settled()), a.kv_heads, a.head_dim};
            out[py::str(prefix + "k")] = copy_rows(state, state.kv[i].k, shape);
            out[py::str(prefix + "v")] = copy_rows(state, state.kv[i].v, shape);
        } else {
            out[py::str(prefix + "S")] = copy(state.delta[i].S, {s.delta_v_heads, s.delta_k_dim, s.delta_v_dim});
            out[py::str(prefix + "ring")] = copy(state.delta[i].ring, {s.conv_taps - 1, s.conv_channels()});
        }
    }
    return out;
}

py::dict arrays(const Sequence &sequence) {
    Model &model = sequence.engine->model;
    Floats logits(model.spec.vocab_size);
    float *data = logits.mutable_data();
    py::dict out;
    const Lease lease(*sequence.engine); // held while copying: another thread may want to move the state on
    const bool known = sequence.state.position > 0 && !model.spec.full_mask() && !model.spec.drafter();
    if (known)
        model.last_logits(sequence.state, data);
    const py::gil_scoped_acquire held;
    out = copy_state(sequence.state, model.spec);
    if (known)
        out["logits"] = logits;
    return out;
}

constexpr const char *kTruncateDoc =
    "Returns to position 0, or to any row of the last commit made with rollback=True; the state is then the one that\n"
    "committing only the rows before it leaves (in the sequential form bit for bit). Under a full mask to any\n"
    "position. Raises ArgumentError.";

} // namespace

void register_state(py::module_ &m) {
    py::class_<Sequence>(m, "State", "What one sequence carries. Made by Model.new_state().")
        .def_property_readonly(
            "position", [](const Sequence &s) { return s.state.position; }, "Committed tokens.")
        .def_property_readonly(
            "capacity", [](const Sequence &s) { return s.state.capacity; }, "Most tokens that may be committed.")
        .def_property_readonly(
            "nbytes", [](const Sequence &s) { return s.state.bytes(); }, "Bytes held now.")
        .def("snapshot", &snapshot, "An independent copy. Raises OutOfMemoryError.")
        .def("restore", &restore, py::arg("state"),
             "Becomes a copy of another state of the same model. Raises ArgumentError, ContextLengthError.")
        .def("truncate", &truncate, py::arg("position"), kTruncateDoc)
        .def("arrays", &arrays,
             "Copies as float32: per layer S [Hv, dk, dv] and ring [taps-1, C], or k and v [position, nkv, hd] (of a\n"
             "block mask: of finished blocks, of a full mask: none); logits [vocab_size] of the last committed row,\n"
             "absent at position 0, under a full mask and in drafters.");
}

} // namespace clover

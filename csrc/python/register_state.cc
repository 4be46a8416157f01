// The class State: what one sequence carries, and copies of it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "model/state_file.h"
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

int64_t rewind(Sequence &sequence, int64_t position) {
    const Lease lease(*sequence.engine);
    sequence.engine->model.rewind(sequence.state, position);
    return sequence.state.position;
}

void mark(Sequence &sequence) {
    const Lease lease(*sequence.engine);
    sequence.state.mark(true);
}

void keep_marks(Sequence &sequence, int64_t every, int64_t max_bytes) {
    if (every < 0 || max_bytes < 0)
        throw ArgumentError("every " + std::to_string(every) + " or max_bytes " + std::to_string(max_bytes) +
                            " is negative");
    const Lease lease(*sequence.engine);
    sequence.state.marking = {every, max_bytes};
}

std::vector<int64_t> marks(const Sequence &sequence) {
    const Lease lease(*sequence.engine);
    std::vector<int64_t> positions;
    for (const Mark &mark : sequence.state.marks)
        positions.push_back(mark.position);
    return positions;
}

Sequence fork(const Sequence &sequence, int64_t position) {
    if (position < 0)
        throw ArgumentError("position " + std::to_string(position) + " is negative");
    const Lease lease(*sequence.engine);
    return {sequence.engine, sequence.state.fork(position)};
}

void extend(Sequence &sequence, int64_t max_tokens) {
    const Lease lease(*sequence.engine);
    sequence.engine->model.extend(sequence.state, max_tokens);
}

void save(const Sequence &sequence, const py::object &write) {
    const Lease lease(*sequence.engine);
    save_state(sequence.state, [&write](const void *data, size_t bytes) {
        check_signals();
        const py::gil_scoped_acquire held;
        write(py::memoryview::from_memory(data, py::ssize_t(bytes)));
    });
}

Sequence load(const std::shared_ptr<Engine> &engine, const py::buffer &data, int64_t max_tokens) {
    const py::buffer_info info = data.request();
    if (info.ndim != 1 || info.itemsize != 1 || info.strides[0] != 1)
        throw ArgumentError("data: is no buffer of bytes");
    const Lease lease(*engine);
    return {engine, load_state(engine->model, static_cast<const uint8_t *>(info.ptr), info.size, max_tokens)};
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
    const bool known = sequence.state.decided() && !model.spec.full_mask() && !model.spec.drafter();
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

constexpr const char *kMarkDoc =
    "Makes this a point that rewind() returns to. It costs what recurrent layers carry; keys and values are not\n"
    "copied. States that may be cut anywhere (no DeltaNet layers, no blocks that count from the ends of commits)\n"
    "need no marks and get none.";

constexpr const char *kRewindDoc =
    "Goes back to the last point at or before `position` that there is, drops the marks behind it and returns its\n"
    "position: `position` itself where the state may be cut anywhere (under a block mask the start of its block) and\n"
    "within the last commit made with rollback=True, else the nearest mark, else 0. Raises ArgumentError.";

constexpr const char *kLoadDoc =
    "The state that State.save() has written, with room for max_tokens. data: a buffer of bytes, such as a mapped\n"
    "file. Raises ModelFormatError naming what does not fit (damaged data, another shape of model, another kv),\n"
    "ContextLengthError, OutOfMemoryError.";

} // namespace

void register_load_state(py::class_<Engine, std::shared_ptr<Engine>> &model) {
    model.def("load_state", &load, py::arg("data"), py::arg("max_tokens"), kLoadDoc);
}

void register_state(py::module_ &m) {
    py::class_<Sequence>(m, "State", "What one sequence carries. Made by Model.new_state().")
        .def_property_readonly(
            "position", [](const Sequence &s) { return s.state.position; }, "Committed tokens.")
        .def_property_readonly(
            "capacity", [](const Sequence &s) { return s.state.capacity; }, "Most tokens that may be committed.")
        .def_property_readonly(
            "nbytes", [](const Sequence &s) { return s.state.bytes(); }, "Bytes held now.")
        .def_property_readonly(
            "decided", [](const Sequence &s) { return s.state.decided(); },
            "Whether the last token's output is known: it is not where rewind() cut the state within a commit.")
        .def_property_readonly(
            "cuttable", [](const Sequence &s) { return s.state.cuttable(); },
            "Whether rewind() may go anywhere, and marks are needless.")
        .def_property_readonly("marks", &marks, "Positions of the marks, ascending.")
        .def("snapshot", &snapshot, "An independent copy, without marks. Raises OutOfMemoryError.")
        .def("restore", &restore, py::arg("state"),
             "Becomes a copy of another state of the same model. Raises ArgumentError, ContextLengthError.")
        .def("truncate", &truncate, py::arg("position"), kTruncateDoc)
        .def("mark", &mark, kMarkDoc)
        .def("keep_marks", &keep_marks, py::kw_only(), py::arg("every"), py::arg("max_bytes"),
             "From now on commits leave marks, at least `every` tokens apart (0: none). All but the newest together\n"
             "take at most max_bytes: those that mark() has not made go first. Raises ArgumentError.")
        .def("rewind", &rewind, py::arg("position"), kRewindDoc)
        .def("fork", &fork, py::arg("position"),
             "A copy that has gone back to `position` as rewind() does; its marks are copied, too. Raises\n"
             "ArgumentError, OutOfMemoryError.")
        .def("extend", &extend, py::arg("max_tokens"),
             "Changes the capacity. Raises ContextLengthError, OutOfMemoryError.")
        .def("save", &save, py::arg("write"),
             "Calls write(memoryview) with one piece of the saved state after the other, marks included; the views\n"
             "are valid during the call. Model.load_state() reads them back. Raises what `write` does.")
        .def("arrays", &arrays,
             "Copies as float32: per layer S [Hv, dk, dv] and ring [taps-1, C], or k and v [position, nkv, hd] (of a\n"
             "block mask: of finished blocks, of a full mask: none); logits [vocab_size] of the last committed row,\n"
             "absent at position 0, under a full mask and in drafters.");
}

} // namespace clover

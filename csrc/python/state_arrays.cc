// State.arrays: what a state holds, as arrays.
#include <pybind11/numpy.h>

#include "python/engine.h"

namespace clover {
namespace {

using Floats = py::array_t<float>;

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

} // namespace

py::dict arrays(const Sequence &sequence) {
    Model &model = sequence.engine->model;
    Floats logits(model.spec.vocab_size);
    float *data = logits.mutable_data();
    py::dict out;
    const Lease lease(*sequence.engine); // held while copying: another thread may want to move the state on
    const bool known = sequence.state.position > 0 && !model.spec.full_mask();
    if (known)
        model.last_logits(sequence.state, data);
    const py::gil_scoped_acquire held;
    out = copy_state(sequence.state, model.spec);
    if (known)
        out["logits"] = logits;
    return out;
}

} // namespace clover

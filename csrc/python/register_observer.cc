// Model.observe: what the layers of a pass read and wrote, as arrays.
#include <pybind11/numpy.h>

#include "python/engine.h"

namespace clover {
namespace {

using Shape = std::vector<py::ssize_t>;

template <class T> py::array_t<T> copy(const T *from, Shape shape) {
    py::array_t<T> out(std::move(shape));
    std::copy_n(from, out.size(), out.mutable_data());
    return out;
}

py::dict mixer_arrays(const Model &m, int rows) {
    py::dict out;
    out["mixed"] = copy(m.scratch.mixed.row(0), {rows, m.scratch.mixed.width()});
    return out;
}

// Pairs back from the order of the experts to that of the rows.
py::array_t<float> by_row(const Model &m, int rows) {
    const py::ssize_t k = m.spec.top_k, width = m.spec.expert_intermediate;
    py::array_t<float> out({py::ssize_t(rows), k, width});
    for (py::ssize_t i = 0; i < rows * k; i++)
        std::copy_n(m.scratch.expert.row(m.scratch.pair_of.data()[i]), width, out.mutable_data() + i * width);
    return out;
}

py::dict feed_forward_arrays(const Model &m, int layer, int rows) {
    py::dict out;
    if (m.spec.feed_forward[size_t(layer)] == FeedForward::dense) {
        out["dense_hidden"] = copy(m.scratch.inner.row(0), {rows, m.spec.dense_intermediate});
        return out;
    }
    out["expert_ids"] = copy(m.scratch.top_id.data(), {rows, m.spec.top_k});
    out["expert_weights"] = copy(m.scratch.top_weight.data(), {rows, m.spec.top_k});
    out["expert_hidden"] = by_row(m, rows);
    if (m.spec.shared_intermediate)
        out["shared_hidden"] = copy(m.scratch.inner.row(0), {rows, m.spec.shared_intermediate});
    return out;
}

// The copy is taken with the interpreter's lock; the engine's is held by the call that runs the pass.
Observer observer_of(const Model &m, py::object callback) {
    return [&m, callback = std::move(callback)](int layer, Half half, int rows) {
        const py::gil_scoped_acquire held;
        const Shape shape = {rows, m.spec.hidden_size};
        py::dict arrays = half == Half::mixer ? mixer_arrays(m, rows) : feed_forward_arrays(m, layer, rows);
        arrays["residual"] = copy(m.scratch.h.data(), shape);
        arrays["input"] = copy(m.scratch.x.row(0), shape);
        arrays["output"] = copy(m.scratch.y.data(), shape);
        callback(layer, half == Half::mixer ? "mixer" : "feed_forward", arrays);
    };
}

void observe(Engine &engine, const py::object &callback) {
    Observer observer;
    engine.model.require_kernels("observe");
    if (!callback.is_none())
        observer = observer_of(engine.model, callback);
    {
        const Lease lease(engine);
        std::swap(engine.model.observer, observer);
    }
    // The old one goes with the interpreter's lock held.
}

constexpr const char *kObserveDoc =
    "Calls callback(layer, half, arrays) behind every half layer of every pass until None takes it away again. half:\n"
    "\"mixer\" or \"feed_forward\". arrays, copies by row of the pass: residual [n, H] (what the half adds to), input\n"
    "[n, H] (normalised, as its first products read it), output [n, H] (what it adds); mixer: mixed [n, heads * "
    "width]\n"
    "(what the output projection reads); feed_forward: expert_ids and expert_weights [n, top_k], expert_hidden\n"
    "[n, top_k, I] and shared_hidden [n, Is], or dense_hidden [n, Id] (what the down projections read). An exception "
    "ends the pass; a state "
    "that\n"
    "it was committing to is then unusable.";

} // namespace

void register_observer(py::class_<Engine, std::shared_ptr<Engine>> &model) {
    model.def("observe", &observe, py::arg("callback").none(true), kObserveDoc);
}

} // namespace clover

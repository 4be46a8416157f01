// What a drafter has instead of a text of its own: what chosen layers of its target put out at every token.
#include <algorithm>

#include "model/forward.h"

namespace clover {
namespace {

// x [n, H] <- norm(context.in . outputs), and the codes that the layers read
void context_rows(Pass &p, const float *outputs) {
    Model &m = p.model;
    const ContextWeights &w = m.weights.context;
    const int width = m.spec.hidden_size;
    Scratch &s = m.scratch;
    Forms forms = 0;
    for (const LayerWeights &layer : m.weights.layers)
        forms |= mixer_forms(layer);
    m.pool.run(p.rows, [&](int64_t r, int) {
        std::copy_n(outputs + r * w.in.k, w.in.k, s.context.row(r));
        s.context.quantize(m.kernels, form_of(w.in), r);
    });
    p.multiply({{w.in, s.context.activations(w.in, 0, p.rows), nullptr, p.rows, s.y.data(), width}});
    m.pool.run(p.rows, [&](int64_t r, int) {
        m.kernels.rmsnorm(s.y.data() + r * width, width, w.norm, m.spec.norm_offset, m.spec.rms_eps, 1, width,
                          s.x.row(r), width);
        s.x.quantize(m.kernels, forms, r);
    });
}

void require(bool same, const char *what, int64_t own, int64_t target) {
    if (!same)
        throw ArgumentError(std::string("its ") + what + " " + std::to_string(own) + " does not fit the model's " +
                            std::to_string(target));
}

} // namespace

void Model::check_drafts_for(const Model &target) const {
    if (!spec.drafter())
        throw UnsupportedModel("the model given as a drafter is none");
    target.require_words();
    target.require_kernels("a drafter");
    const int layers = int(target.spec.layers.size()), last = spec.drafts_for_layers.back();
    require(spec.vocab_size == target.spec.vocab_size, "vocab_size", spec.vocab_size, target.spec.vocab_size);
    require(spec.hidden_size == target.spec.hidden_size, "hidden_size", spec.hidden_size, target.spec.hidden_size);
    require(last < layers, "last layer of drafts_for_layers", last, layers);
}

void Model::commit_context(State &state, const float *outputs, int rows) {
    if (rows > state.capacity - state.position)
        throw ContextLengthError(std::to_string(rows) + " tokens behind position " + std::to_string(state.position) +
                                 " exceed the drafter's capacity of " + std::to_string(state.capacity));
    scratch.reserve(rows);
    state.reserve(state.position + rows);
    const std::vector<int> no_ids(static_cast<size_t>(rows));
    Pass pass(*this, state, no_ids.data(), rows, {}, {}, grid_of(spec, state.position + rows));
    context_rows(pass, outputs);
    set_angles(pass);
    for (int i = 0; i < int(spec.layers.size()); i++)
        context_layer(pass, i);
    state.position += rows;
    state.passes++;
    counters.rows += rows;
}

} // namespace clover

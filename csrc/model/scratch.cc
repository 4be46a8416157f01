#include "model/scratch.h"

#include <algorithm>

#include "model/memory.h"

namespace clover {

Forms mixer_forms(const LayerWeights &w) { return form_of(w.kind == LayerKind::attention ? w.attn.in : w.delta.in); }

Forms dense_forms(const LayerWeights &w) { return form_of(w.dense.gate_up); }

Forms expert_forms(const LayerWeights &w) {
    return form_of(w.moe.gate.first) | form_of(w.moe.up.first) | form_of(w.moe.shared_gate_up);
}

Scratch::Scratch(const Spec &spec, const Weights &weights, int threads)
    : spec_(spec), passes_(!weights.layers.empty()), threads_(threads) {
    int widest = spec.hidden_size; // of a norm without weight
    x_forms_ = form_of(weights.head) | form_of(weights.self_conditioning.forward.gate_up);
    inner_forms_ = form_of(weights.self_conditioning.forward.down);
    for (size_t i = 0; i < weights.layers.size(); i++) {
        const LayerWeights &w = weights.layers[i];
        if (w.kind == LayerKind::attention)
            attention_.push_back(spec.attention(int(i)));
        x_forms_ |= mixer_forms(w) | dense_forms(w) | expert_forms(w);
        mixed_forms_ |= form_of(w.kind == LayerKind::attention ? w.attn.out : w.delta.out);
        expert_forms_ |= form_of(w.moe.down.first);
        inner_forms_ |= form_of(w.dense.down) | form_of(w.moe.shared_down);
    }
    for (const AttentionShape &a : attention_)
        widest = std::max(widest, a.head_dim);
    ones.assign(size_t(spec.v_norm || spec.self_conditioning_intermediate ? widest : 0), 1.0f);
    x.shape(spec.hidden_size);
    context_forms_ = form_of(weights.context.in);
    context.shape(spec.hidden_size * int(spec.drafts_for_layers.size()));
    expert.shape(spec.expert_intermediate);
}

template <class Self, class OnBuffer, class OnInput>
void Scratch::visit(Self &self, int64_t n, int64_t total, int64_t mixer_floats, OnBuffer &&buffer, OnInput &&input) {
    const Spec &s = self.spec_;
    const bool deltanet = s.has(LayerKind::deltanet);
    int64_t attn_in = 0, q_width = 0, kv_width = 0; // of the widest attention layer
    for (const AttentionShape &a : self.attention_) {
        attn_in = std::max<int64_t>(attn_in, a.in_rows());
        q_width = std::max<int64_t>(q_width, a.q_width());
        kv_width = std::max<int64_t>(kv_width, a.kv_width());
    }
    const int64_t delta_in = deltanet ? s.delta_in_rows() : 0, v_width = deltanet ? s.value_width() : 0;
    const int64_t heads = deltanet ? s.delta_v_heads : 0, pairs = n * s.top_k;
    buffer(self.h, total * s.hidden_size);
    buffer(self.y, total * s.hidden_size);
    buffer(self.head_parts, head_stripes(tiles_of(s.vocab_size)) * n);
    buffer(self.head_work, self.threads_ * head_scratch_floats(int(n)));
    if (!self.passes_)
        return;
    input(self.x, n, s.hidden_size, self.x_forms_);
    input(self.context, n, s.hidden_size * int64_t(s.drafts_for_layers.size()), self.context_forms_);
    buffer(self.rope, self.attention_.empty() ? 0 : total * (s.rotary_dim + s.local_rotary_dim()));
    buffer(self.proj, total * std::max(attn_in, delta_in));
    input(self.mixed, n, std::max(q_width, v_width), self.mixed_forms_);
    buffer(self.ba, n * 2 * heads);
    buffer(self.g, n * heads);
    buffer(self.beta, n * heads);
    buffer(self.conv, n * (deltanet ? s.conv_channels() : 0));
    buffer(self.delta_state, deltanet && s.causal_delta() ? self.threads_ * int64_t(s.delta_k_dim) * s.delta_v_dim : 0);
    buffer(self.mixer_work, self.threads_ * mixer_floats);
    buffer(self.kv_row, n * kv_width * (s.v_norm ? 2 : 1));
    buffer(self.router, n * s.num_experts);
    buffer(self.router_choice, s.router == "sigmoid" ? n * s.num_experts : 0);
    buffer(self.top_id, pairs);
    buffer(self.pair_of, pairs);
    buffer(self.top_weight, pairs);
    buffer(self.pair_row, pairs);
    buffer(self.gate, pairs * s.expert_intermediate);
    buffer(self.up, pairs * s.expert_intermediate);
    input(self.expert, pairs, s.expert_intermediate, self.expert_forms_);
    buffer(self.pair_out, pairs * s.hidden_size);
    buffer(self.shared_gate, s.shared_intermediate ? n : 0);
    buffer(self.shared_out, s.shared_intermediate ? n * s.hidden_size : 0);
    const bool soft = s.self_conditioning_intermediate > 0;
    const int64_t inner = std::max({s.shared_intermediate, s.dense_intermediate, s.self_conditioning_intermediate});
    buffer(self.gate_up, n * 2 * inner);
    input(self.inner, n, inner, self.inner_forms_);
    const bool both = s.has(FeedForward::dense) && s.has(FeedForward::experts);
    buffer(self.beside, both ? n * s.hidden_size : 0);
    buffer(self.soft, soft ? n * s.hidden_size : 0);
    buffer(self.soft_weights, soft ? n * kSoftChunk : 0);
    buffer(self.soft_columns, soft ? int64_t(s.hidden_size) * kSoftChunk : 0);
}

int64_t Scratch::mixer_floats(int rows) const {
    int64_t mixer = 0;
    if (spec_.has(LayerKind::deltanet))
        mixer = delta_scratch_floats(rows, spec_.delta_k_dim, spec_.delta_v_dim);
    for (const AttentionShape &a : attention_)
        mixer =
            std::max(mixer, attention_scratch_floats(std::min(rows, kAttentionRows), a.heads / a.kv_heads, a.head_dim));
    return (mixer + 15) / 16 * 16; // shares start on a cache line
}

int64_t Scratch::bytes(int rows, int total) const {
    int64_t sum = 0;
    visit(
        *this, rows, std::max(rows, total), mixer_floats(rows),
        [&](const auto &b, int64_t n) { sum += n * int64_t(sizeof(*b.data())); },
        [&](const Input &, int64_t n, int64_t k, Forms forms) { sum += Input::bytes(n, k, forms); });
    return sum;
}

void Scratch::reserve(int rows, int total) {
    total = std::max(rows, total);
    if (rows <= rows_ && total <= total_)
        return;
    rows = std::max(rows, rows_);
    total = std::max(total, total_);
    require_memory("working memory of a pass over " + std::to_string(total) + " rows", bytes(rows, total));
    rows_ = total_ = 0; // an allocation that fails half way leaves nothing usable
    mixer_share = mixer_floats(rows);
    visit(
        *this, rows, total, mixer_share, [](auto &b, int64_t n) { b.resize(n); },
        [](Input &in, int64_t n, int64_t k, Forms forms) { in.reserve(n, k, forms); });
    rows_ = rows;
    total_ = total;
}

} // namespace clover

#include "model/spec.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

constexpr int64_t kMaxDim = 1 << 24;   // any single dimension
constexpr int64_t kMaxWidth = 1 << 28; // any product of two that becomes a row count
constexpr double kMaxInvFreq = 1000;   // angles then stay exact to 1e-4
constexpr int kMaxLayers = 4096;
constexpr int64_t kMaxPositions = 1 << 30; // exact in the double that the rotary angle is computed in

[[noreturn]] void fail(const char *field, const std::string &reason) { throw FormatError("spec", field, reason); }

void in_range(const char *field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        fail(field, std::to_string(value) + " is outside [" + std::to_string(low) + ", " + std::to_string(high) + "]");
}

void positive(const char *field, double value) {
    if (!(value > 0) || !std::isfinite(value))
        fail(field, std::to_string(value) + " is not a positive finite number");
}

void multiple(const char *field, int value, const char *of, int divisor) {
    if (value % divisor != 0)
        fail(field, std::to_string(value) + " is no multiple of " + of + " = " + std::to_string(divisor));
}

void width(const char *field, std::initializer_list<int64_t> products) {
    int64_t sum = 0;
    for (int64_t product : products)
        sum += product; // each product of two dimensions is below 2^48
    if (sum > kMaxWidth)
        fail(field, "a projection of " + std::to_string(sum) + " rows is too wide");
}

void check_rope(const Spec &s) {
    positive("rope_attention_factor", s.rope_attention_factor);
    if (s.rope_inv_freq.empty())
        return positive("rope_theta", s.rope_theta);
    if (s.rope_inv_freq.size() != size_t(s.rotary_dim / 2))
        fail("rope_inv_freq", std::to_string(s.rope_inv_freq.size()) + " frequencies for a rotary_dim of " +
                                  std::to_string(s.rotary_dim));
    for (double f : s.rope_inv_freq)
        if (!(f >= 0 && f <= kMaxInvFreq))
            fail("rope_inv_freq", std::to_string(f) + " is outside [0, 1000] radians a position");
}

// A list by layer may be absent; where a layer has no attention its entry says nothing but `idle`.
void by_layer(const Spec &s, const char *field, const std::vector<int> &list, int64_t low, int64_t high, int idle) {
    if (!list.empty() && list.size() != s.layers.size())
        fail(field,
             "has " + std::to_string(list.size()) + " entries for " + std::to_string(s.layers.size()) + " layers");
    for (size_t i = 0; i < list.size(); i++) {
        const bool attention = s.layers[i] == LayerKind::attention;
        in_range(field, list[i], attention ? low : idle, attention ? high : idle);
    }
}

void check_layer_lists(const Spec &s) {
    by_layer(s, "windows", s.windows, 0, kMaxPositions, 0);
    by_layer(s, "head_dims", s.head_dims, 1, kMaxDim, 0);
    by_layer(s, "kv_heads", s.kv_heads, 1, kMaxDim, 0);
    by_layer(s, "values_from_keys", s.values_from_keys, 0, 1, 0);
    if (s.rope_local_theta != 0)
        positive("rope_local_theta", s.rope_local_theta);
    else
        in_range("rope_local_dim", s.rope_local_dim, 0, 0);
}

void check_shape(const Spec &s, int layer) {
    const AttentionShape a = s.attention(layer);
    multiple("num_heads", a.heads, "num_kv_heads", a.kv_heads);
    in_range(s.local_rope(layer) && s.rope_local_dim ? "rope_local_dim" : "rotary_dim", a.rotary_dim, 0, a.head_dim);
    width("head_dim", {2 * int64_t(a.heads) * a.head_dim, 2 * int64_t(a.kv_heads) * a.head_dim});
}

void check_attention(const Spec &s) {
    in_range("num_heads", s.num_heads, 1, kMaxDim);
    in_range("num_kv_heads", s.num_kv_heads, 1, kMaxDim);
    in_range("head_dim", s.head_dim, 1, kMaxDim);
    in_range("rotary_dim", s.rotary_dim, 0, kMaxDim);
    in_range("rope_local_dim", s.rope_local_dim, 0, kMaxDim);
    multiple("rotary_dim", s.rotary_dim, "the pair", 2);
    multiple("rope_local_dim", s.rope_local_dim, "the pair", 2);
    check_rope(s);
    positive("attn_scale", s.attn_scale);
    if (!(s.query_scale_beta >= 0) || !std::isfinite(s.query_scale_beta))
        fail("query_scale_beta", std::to_string(s.query_scale_beta) + " is not a finite number from 0 up");
    in_range("query_scale_positions", s.query_scale_positions, 1, kMaxPositions);
    for (size_t i = 0; i < s.layers.size(); i++)
        if (s.layers[i] == LayerKind::attention)
            check_shape(s, int(i));
}

void check_deltanet(const Spec &s) {
    in_range("delta_k_heads", s.delta_k_heads, 1, kMaxDim);
    in_range("delta_v_heads", s.delta_v_heads, 1, kMaxDim);
    in_range("delta_k_dim", s.delta_k_dim, 1, kMaxDim);
    in_range("delta_v_dim", s.delta_v_dim, 1, kMaxDim);
    multiple("delta_v_heads", s.delta_v_heads, "delta_k_heads", s.delta_k_heads);
    in_range("conv_taps", s.conv_taps, 2, 16);
    in_range("history_ref_rows", s.history_ref_rows, 1, kMaxDim);
    width("delta_k_dim", {2 * int64_t(s.delta_k_heads) * s.delta_k_dim, 2 * int64_t(s.delta_v_heads) * s.delta_v_dim});
    width("delta_v_dim", {int64_t(s.delta_k_dim) * s.delta_v_dim});
}

// Experts of a group are neighbours; a group counts with its two best.
void check_router(const Spec &s) {
    if (s.router != "softmax" && s.router != "sigmoid")
        throw UnsupportedModel("spec: router \"" + s.router + "\" is not supported (softmax and sigmoid are)");
    positive("routed_scaling_factor", s.routed_scaling_factor);
    positive("router_logit_scale", s.router_logit_scale);
    in_range("n_group", s.n_group, 1, s.num_experts);
    in_range("topk_group", s.topk_group, 1, s.n_group);
    const int group = s.num_experts / s.n_group;
    if (s.num_experts % s.n_group || (s.n_group > 1 && group < 2))
        fail("n_group", std::to_string(s.num_experts) + " experts do not divide into " + std::to_string(s.n_group) +
                            " groups of two or more");
    if (s.topk_group * group < s.top_k)
        fail("topk_group", std::to_string(s.topk_group) + " groups of " + std::to_string(group) +
                               " hold fewer than top_k = " + std::to_string(s.top_k) + " experts");
    if (s.router == "softmax" && (s.router_bias || s.n_group > 1))
        throw UnsupportedModel("spec: router_bias and n_group are not supported of the router softmax");
}

void check_experts(const Spec &s) {
    in_range("num_experts", s.num_experts, 1, 1 << 16);
    in_range("top_k", s.top_k, 1, s.num_experts);
    in_range("expert_intermediate", s.expert_intermediate, 1, kMaxDim);
    in_range("shared_intermediate", s.shared_intermediate, 0, kMaxDim);
    if (s.coreset_size && s.coreset_size < s.top_k)
        fail("coreset_size", std::to_string(s.coreset_size) + " is below top_k = " + std::to_string(s.top_k));
    check_router(s);
}

void check_commands(const Spec &s) {
    if (s.delete_token_id == -1 && s.split_token_id == -1)
        return;
    in_range("delete_token_id", s.delete_token_id, 0, s.valid_vocab - 1);
    in_range("split_token_id", s.split_token_id, 0, s.valid_vocab - 1);
    if (s.delete_token_id == s.split_token_id || s.delete_token_id == s.mask_token_id ||
        s.split_token_id == s.mask_token_id)
        fail("split_token_id", "of delete, split and mask token two are the same");
    if (!s.block_mask() || s.logit_shift)
        throw UnsupportedModel("spec: delete_token_id is not supported without mask \"block\", or with logit_shift");
}

void check_preview(const Spec &s) {
    if (s.noise != "mask" && !s.uniform_noise())
        throw UnsupportedModel("spec: noise \"" + s.noise + "\" is not supported (mask and uniform are)");
    if (s.uniform_noise())
        in_range("mask_token_id", s.mask_token_id, -1, -1); // there is none
    else if (s.preview || s.mask_token_id != -1)
        in_range("mask_token_id", s.mask_token_id, 0, s.vocab_size - 1);
    in_range("block_size", s.block_size, s.preview ? 1 : 0, 1024);
    check_commands(s);
    in_range("self_conditioning_intermediate", s.self_conditioning_intermediate, 0, s.preview ? kMaxDim : 0);
}

void check_drafter(const Spec &s) {
    int before = -1;
    for (int layer : s.drafts_for_layers) {
        in_range("drafts_for_layers", layer, before + 1, kMaxLayers - 1);
        before = layer;
    }
    if (s.drafter() &&
        (!s.preview || s.uniform_noise() || s.block_mask() || s.has(LayerKind::deltanet) || s.row_before_decides()))
        throw UnsupportedModel("spec: drafts_for_layers is not supported without previews of masks, or with mask "
                               "\"block\", DeltaNet layers, logit_shift or block_seed");
}

void check_supported(const Spec &s) {
    if (s.mask != "causal" && s.mask != "block" && s.mask != "full")
        throw UnsupportedModel("spec: mask \"" + s.mask + "\" is not supported (causal, block and full are)");
    if (s.full_mask() && (!s.preview || s.has(LayerKind::deltanet) || s.uniform_noise()))
        throw UnsupportedModel("spec: mask \"full\" is not supported of autoregressive models, DeltaNet layers or "
                               "noise \"uniform\"");
    if (s.full_mask() && (!s.windows.empty() || s.coreset_size))
        throw UnsupportedModel("spec: windows and coreset_size are not supported of mask \"full\"");
    if (s.delta_preview != "operator" && !s.causal_delta())
        throw UnsupportedModel("spec: delta_preview \"" + s.delta_preview +
                               "\" is not supported (operator and causal are)");
    if (s.block_mask() && !s.preview)
        throw UnsupportedModel("spec: mask \"block\" is not supported of autoregressive models");
    if (s.block_mask() && s.has(LayerKind::deltanet) && !s.causal_delta())
        throw UnsupportedModel("spec: mask \"block\" is not supported of DeltaNet layers with delta_preview "
                               "\"operator\"");
    if (s.block_origin != "prompt_end" && !s.absolute_blocks())
        throw UnsupportedModel("spec: block_origin \"" + s.block_origin +
                               "\" is not supported (absolute and prompt_end are)");
    if (s.absolute_blocks() && !s.block_mask())
        throw UnsupportedModel("spec: block_origin \"absolute\" is not supported of mask \"" + s.mask + "\"");
    if (s.logit_shift != 0 && s.logit_shift != 1)
        throw UnsupportedModel("spec: logit_shift " + std::to_string(s.logit_shift) +
                               " is not supported (0 and 1 are)");
    if (s.uniform_noise() && (!s.preview || s.block_mask() || s.logit_shift))
        throw UnsupportedModel("spec: noise \"uniform\" is not supported of autoregressive models, mask \"block\" or "
                               "logit_shift 1");
    if (s.self_conditioning_intermediate && !s.uniform_noise())
        throw UnsupportedModel("spec: self_conditioning_intermediate is not supported of noise \"mask\"");
    if (s.preview_decay)
        throw UnsupportedModel("spec: preview_decay is not supported");
}

} // namespace

bool Spec::has(LayerKind kind) const { return std::find(layers.begin(), layers.end(), kind) != layers.end(); }

bool Spec::has(FeedForward part) const {
    return std::any_of(feed_forward.begin(), feed_forward.end(),
                       [&](FeedForward kind) { return kind == part || kind == FeedForward::dense_and_experts; });
}

AttentionShape Spec::attention(int layer) const {
    const auto of = [layer](const std::vector<int> &list, int all) { return list.empty() ? all : list[size_t(layer)]; };
    return {num_heads,
            of(kv_heads, num_kv_heads),
            of(head_dims, head_dim),
            local_rope(layer) ? local_rotary_dim() : rotary_dim,
            attn_output_gate,
            of(values_from_keys, 0) == 0};
}

void validate(const Spec &s) {
    in_range("vocab_size", s.vocab_size, 2, kMaxDim);
    in_range("valid_vocab", s.valid_vocab, 2, s.vocab_size); // one real id beside the mask at least
    in_range("hidden_size", s.hidden_size, 1, kMaxDim);
    in_range("num_layers", int64_t(s.layers.size()), 1, kMaxLayers);
    in_range("max_positions", s.max_positions, 1, kMaxPositions);
    check_preview(s);
    check_drafter(s);
    positive("rms_eps", s.rms_eps);
    positive("embed_scale", s.embed_scale);
    if (s.logit_softcap != 0)
        positive("logit_softcap", s.logit_softcap);
    check_layer_lists(s);
    if (s.norm_offset != 0 && s.norm_offset != 1)
        fail("norm_offset", std::to_string(s.norm_offset) + " is neither 0 nor 1");
    if (s.has(LayerKind::attention))
        check_attention(s);
    if (s.has(LayerKind::deltanet))
        check_deltanet(s);
    if (s.has(FeedForward::experts))
        check_experts(s);
    in_range("coreset_size", s.coreset_size, 0, s.num_experts);
    if (s.has(FeedForward::dense))
        in_range("dense_intermediate", s.dense_intermediate, 1, kMaxDim);
    check_supported(s);
}

} // namespace clover

// What the core needs to know about a model: plain numbers, no file or family names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace clover {

// A well-formed spec that asks for something this build does not compute.
class UnsupportedModel : public UnsupportedError {
    using UnsupportedError::UnsupportedError;
};

enum class LayerKind { deltanet, attention };
enum class FeedForward { experts, dense };
enum class Activation { silu, gelu_tanh }; // of the gate, in experts and dense layers

struct Spec {
    int vocab_size = 0;  // rows of the head
    int valid_vocab = 0; // ids from here on are padding and never emitted
    int hidden_size = 0;
    float rms_eps = 0;
    float norm_offset = 0; // norms multiply by (w + offset): 1 zero-centred, 0 plain
    std::vector<LayerKind> layers;
    std::vector<FeedForward> feed_forward; // by layer

    // Attention layers.
    int num_heads = 0, num_kv_heads = 0, head_dim = 0;
    int rotary_dim = 0; // leading dims of a head that rotate, in pairs (i, i + rotary_dim / 2)
    double rope_theta = 0;
    std::vector<double> rope_inv_freq; // [rotary_dim / 2] radians a position; empty: theta^(-2i / rotary_dim)
    double rope_attention_factor = 1;  // on cosines and sines
    bool attn_output_gate = true;
    bool qk_norm = true; // heads of q and k are normalised before they rotate
    bool attn_in_bias = false, attn_out_bias = false;
    float attn_scale = 0;
    // Queries are multiplied by 1 + beta ln(1 + floor(position / positions)).
    double query_scale_beta = 0;
    int64_t query_scale_positions = 1;
    std::vector<int> windows;    // by layer: nearest keys that a row sees, its own included; 0, or no list: all
    double rope_local_theta = 0; // base of the layers that have a window; 0: as the others

    // DeltaNet layers: Hk key heads of dk, Hv value heads of dv, value head h uses key head h / (Hv / Hk).
    int delta_k_heads = 0, delta_v_heads = 0, delta_k_dim = 0, delta_v_dim = 0;
    int conv_taps = 0;

    // Feed-forward: experts, or one dense SwiGLU of its own width.
    int dense_intermediate = 0;
    int num_experts = 0, top_k = 0, expert_intermediate = 0;
    int shared_intermediate = 0; // 0: no shared expert
    std::string router = "softmax";
    bool norm_topk = true; // the top-k probabilities are scaled to sum to 1
    Activation activation = Activation::silu;
    // A sigmoid router: a bias that counts where experts are chosen but not in their weights, a choice within the
    // topk_group best of n_group groups, and a factor on the weights.
    bool router_bias = false;
    int n_group = 1, topk_group = 1;
    float routed_scaling_factor = 1;
    bool shared_gate = true; // the shared expert's output passes a sigmoid gate

    bool tie_embeddings = false;
    float embed_scale = 1;   // on embedding rows
    bool post_norms = false; // outputs of both halves of a layer are normalised, too
    int64_t max_positions = 0;
    bool preview = true;    // false: the model is autoregressive, and has no tensors for previews
    int mask_token_id = -1; // never emitted; -1 (no preview): there is none
    int block_size = 0;     // width of a block as trained
    int coreset_size = 0;   // experts that the rows of one preview may use; 0: all

    // What DeltaNet layers do in a preview. operator: the bidirectional softmax over the block and its history, with
    // tensors of its own. causal: the ordinary recurrence on a copy of the committed state.
    std::string delta_preview = "operator";

    // The operator, where the public record leaves a choice (ARCHITECTURE.md).
    bool history_q_scale = true;     // the read-out S^T q uses q * dk^-1/2
    bool preview_value_beta = false; // v weighted by beta
    bool preview_decay = false;      // not supported
    int history_ref_rows = 32;       // rows at which the history's logit is history_bias itself

    // causal: commits are causal, a preview's rows see all of their block. block: rows of either see their block
    // and all before it.
    std::string mask = "causal";
    // Where blocks are counted from: absolute, position 0; prompt_end, the end of what is committed in one call.
    std::string block_origin = "prompt_end";
    int logit_shift = 0;     // 1: a row's token comes from the logits of the row before it
    bool block_seed = false; // the last row in front of a block decides its first token, as in autoregression

    int q_width() const { return num_heads * head_dim; }
    int kv_width() const { return num_kv_heads * head_dim; }
    int attn_in_rows() const { return (attn_output_gate ? 2 : 1) * q_width() + 2 * kv_width(); }
    int key_width() const { return delta_k_heads * delta_k_dim; }
    int value_width() const { return delta_v_heads * delta_v_dim; }
    int conv_channels() const { return 2 * key_width() + value_width(); } // C: q, k, v
    int delta_in_rows() const { return conv_channels() + value_width(); } // q, k, v, z
    int window(int layer) const { return windows.empty() ? 0 : windows[size_t(layer)]; }
    bool causal_delta() const { return delta_preview == "causal"; }
    bool block_mask() const { return mask == "block"; }
    bool absolute_blocks() const { return block_origin == "absolute"; }
    bool has(LayerKind kind) const;
    bool has(FeedForward kind) const;
};

// Throws FormatError("spec", field, reason) or UnsupportedModel.
void validate(const Spec &);

} // namespace clover

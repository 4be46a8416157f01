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
enum class FeedForward { experts, dense, dense_and_experts }; // the last: both, side by side
enum class Activation { silu, gelu_tanh };                    // of the gate, in experts and dense layers

// Of one attention layer.
struct AttentionShape {
    int heads, kv_heads, head_dim, rotary_dim;
    bool gate, own_values; // without values of its own a layer takes the keys in front of norm and rotation

    int q_width() const { return heads * head_dim; }
    int kv_width() const { return kv_heads * head_dim; }
    int in_rows() const { return (gate ? 2 : 1) * q_width() + (own_values ? 2 : 1) * kv_width(); } // q, gate, k, v
};

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
    int rope_local_dim = 0;      // and their rotary_dim; 0: as the others
    // By layer, where layers differ; no list: as above.
    std::vector<int> head_dims, kv_heads;
    std::vector<int> values_from_keys; // 1: its values are its keys in front of norm and rotation; no list: none
    bool v_norm = false;               // heads of v are normalised, without a weight

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
    // The router reads the residual under a norm of its own, and its logits are scaled; the chosen experts' weights
    // are multiplied by a factor of each expert.
    bool router_norm = false, expert_scales = false;
    float router_logit_scale = 1;

    bool tie_embeddings = false;
    float embed_scale = 1;   // on embedding rows
    bool post_norms = false; // outputs of both halves of a layer are normalised, too
    // What leaves a layer is multiplied by a number of the layer's: one in commits, another in previews.
    bool layer_scales = false;
    float logit_softcap = 0; // logits z become cap * tanh(z / cap); 0: they stay
    int64_t max_positions = 0;
    bool preview = true;    // false: the model is autoregressive, and has no tensors for previews
    int mask_token_id = -1; // never emitted; -1 (no preview): there is none
    // Tokens that are commands while a block is denoised: take this position out, put a mask in front of what was here.
    // -1: there are none.
    int delete_token_id = -1, split_token_id = -1;
    int block_size = 0; // width of a block as trained
    // A drafter: it has neither embedding nor head and uses those of another model, whose layers of these numbers,
    // ascending, put out what stands for the text in it. Empty: a model of its own.
    std::vector<int> drafts_for_layers;
    // What a new block holds. mask: the mask token. uniform: real ids drawn at random; there is no mask token then.
    std::string noise = "mask";
    // A preview also reads what the one before it made of every position: the mean embedding under its probabilities,
    // through a gated feed-forward of this width. 0: it does not
    int self_conditioning_intermediate = 0;
    int coreset_size = 0; // experts that the rows of one preview may use; 0: all

    // What DeltaNet layers do in a preview. operator: the bidirectional softmax over the block and its history, with
    // tensors of its own. causal: the ordinary recurrence on a copy of the committed state.
    std::string delta_preview = "operator";

    // The operator, where the public record leaves a choice (ARCHITECTURE.md).
    bool history_q_scale = true;     // the read-out S^T q uses q * dk^-1/2
    bool preview_value_beta = false; // v weighted by beta
    bool preview_decay = false;      // not supported
    int history_ref_rows = 32;       // rows at which the history's logit is history_bias itself

    // causal: commits are causal, a preview's rows see all of their block. block: rows of either see their block
    // and all before it. full: rows of either see the whole text, the masks behind it included.
    std::string mask = "causal";
    // Where blocks are counted from: absolute, position 0; prompt_end, the end of what is committed in one call.
    std::string block_origin = "prompt_end";
    int logit_shift = 0;     // 1: a row's token comes from the logits of the row before it
    bool block_seed = false; // the last row in front of a block decides its first token, as in autoregression

    AttentionShape attention(int layer) const;
    int key_width() const { return delta_k_heads * delta_k_dim; }
    int value_width() const { return delta_v_heads * delta_v_dim; }
    int conv_channels() const { return 2 * key_width() + value_width(); } // C: q, k, v
    int delta_in_rows() const { return conv_channels() + value_width(); } // q, k, v, z
    int window(int layer) const { return windows.empty() ? 0 : windows[size_t(layer)]; }
    bool drafter() const { return !drafts_for_layers.empty(); }
    bool inserts() const { return delete_token_id >= 0; }
    bool causal_delta() const { return delta_preview == "causal"; }
    // Keys are rotated by tables of the layers with a window, where these have their own.
    bool local_rope(int layer) const { return rope_local_theta != 0 && window(layer) != 0; }
    int local_rotary_dim() const { return rope_local_theta == 0 ? 0 : rope_local_dim ? rope_local_dim : rotary_dim; }
    bool block_mask() const { return mask == "block"; }
    // Commits say by where they end how the rows in front see each other.
    bool blocks_from_ends() const { return block_mask() && !absolute_blocks(); }
    bool full_mask() const { return mask == "full"; }
    bool sees_ahead() const { return mask != "causal"; } // outputs of rows depend on what follows
    bool uniform_noise() const { return noise == "uniform"; }
    bool row_before_decides() const { return logit_shift || block_seed; } // a block's first token
    bool absolute_blocks() const { return block_origin == "absolute"; }
    bool has(LayerKind kind) const;
    bool has(FeedForward part) const; // experts or dense, alone or side by side
};

// Throws FormatError("spec", field, reason) or UnsupportedModel.
void validate(const Spec &);

} // namespace clover

// Python dictionaries to plain structs. Every field is checked by name.
#include <algorithm>

#include "python/bindings.h"
#include "python/fields.h"

namespace clover {
namespace {

void spec_failure(const std::string &field, const std::string &reason) { throw FormatError("spec", field, reason); }

void option_failure(const std::string &field, const std::string &reason) {
    throw ArgumentError("option \"" + field + "\" " + reason);
}

void read_layers(Fields &f, Spec &s) {
    std::vector<std::string> kinds;
    int layers = 0;
    f.required("num_layers", layers);
    f.required("layer_types", kinds);
    if (kinds.size() != size_t(layers))
        f.bad("layer_types",
              "has " + std::to_string(kinds.size()) + " entries for " + std::to_string(layers) + " layers");
    for (const std::string &kind : kinds) {
        if (kind != "deltanet" && kind != "attention")
            throw UnsupportedModel("spec: layer type \"" + kind + "\" is not supported (deltanet and attention are)");
        s.layers.push_back(kind == "deltanet" ? LayerKind::deltanet : LayerKind::attention);
    }
    kinds.assign(kinds.size(), "experts");
    if (f.optional("ffn_types", kinds) && kinds.size() != size_t(layers))
        f.bad("ffn_types",
              "has " + std::to_string(kinds.size()) + " entries for " + std::to_string(layers) + " layers");
    for (const std::string &kind : kinds) {
        if (kind != "experts" && kind != "dense" && kind != "dense_and_experts")
            throw UnsupportedModel("spec: feed-forward \"" + kind +
                                   "\" is not supported (experts, dense and dense_and_experts are)");
        s.feed_forward.push_back(kind == "dense"     ? FeedForward::dense
                                 : kind == "experts" ? FeedForward::experts
                                                     : FeedForward::dense_and_experts);
    }
}

// A layer kind that the model does not have needs no fields.
void read_mixers(Fields &f, Spec &s) {
    const auto read = [&f](LayerKind kind, const Spec &s, const char *name, auto &out) {
        s.has(kind) ? f.required(name, out) : void(f.optional(name, out));
    };
    for (auto [name, out] : {std::pair<const char *, int *>{"num_heads", &s.num_heads},
                             {"num_kv_heads", &s.num_kv_heads},
                             {"head_dim", &s.head_dim},
                             {"rotary_dim", &s.rotary_dim}})
        read(LayerKind::attention, s, name, *out);
    if (!f.optional("rope_inv_freq", s.rope_inv_freq)) // else the base would have no say
        read(LayerKind::attention, s, "rope_theta", s.rope_theta);
    f.optional("rope_attention_factor", s.rope_attention_factor);
    read(LayerKind::attention, s, "attn_scale", s.attn_scale);
    f.optional("query_scale_beta", s.query_scale_beta);
    f.optional("query_scale_positions", s.query_scale_positions);
    f.optional("attn_output_gate", s.attn_output_gate);
    f.optional("qk_norm", s.qk_norm);
    f.optional("attn_in_bias", s.attn_in_bias);
    f.optional("attn_out_bias", s.attn_out_bias);
    f.optional("windows", s.windows);
    f.optional("rope_local_theta", s.rope_local_theta);
    f.optional("rope_local_dim", s.rope_local_dim);
    f.optional("head_dims", s.head_dims);
    f.optional("kv_heads", s.kv_heads);
    f.optional("values_from_keys", s.values_from_keys);
    f.optional("v_norm", s.v_norm);
    for (auto [name, out] : {std::pair<const char *, int *>{"delta_k_heads", &s.delta_k_heads},
                             {"delta_v_heads", &s.delta_v_heads},
                             {"delta_k_dim", &s.delta_k_dim},
                             {"delta_v_dim", &s.delta_v_dim},
                             {"conv_taps", &s.conv_taps}})
        read(LayerKind::deltanet, s, name, *out);
}

// Nor does a feed-forward that it does not have.
void read_feed_forward(Fields &f, Spec &s) {
    if (s.has(FeedForward::dense))
        f.required("dense_intermediate", s.dense_intermediate);
    if (!s.has(FeedForward::experts))
        return;
    f.required("num_experts", s.num_experts);
    f.required("top_k", s.top_k);
    f.required("expert_intermediate", s.expert_intermediate);
    f.required("shared_intermediate", s.shared_intermediate);
}

// Every model has a block size but one that is autoregressive, and a mask token where blocks start as masks.
void read_preview(Fields &f, Spec &s) {
    f.optional("preview", s.preview);
    f.optional("noise", s.noise);
    f.optional("self_conditioning_intermediate", s.self_conditioning_intermediate);
    const auto read = [&f](bool required, const char *name, int &out) {
        required ? f.required(name, out) : void(f.optional(name, out));
    };
    read(s.preview && s.noise == "mask", "mask_token_id", s.mask_token_id);
    read(s.preview, "block_size", s.block_size);
}

void read_choices(Fields &f, Spec &s) {
    std::string activation = "silu";
    f.optional("activation", activation);
    if (activation != "silu" && activation != "gelu_tanh")
        throw UnsupportedModel("spec: activation \"" + activation + "\" is not supported (silu and gelu_tanh are)");
    s.activation = activation == "silu" ? Activation::silu : Activation::gelu_tanh;
    f.optional("embed_scale", s.embed_scale);
    f.optional("post_norms", s.post_norms);
    f.optional("router", s.router);
    f.optional("norm_topk", s.norm_topk);
    f.optional("router_bias", s.router_bias);
    f.optional("n_group", s.n_group);
    f.optional("topk_group", s.topk_group);
    f.optional("routed_scaling_factor", s.routed_scaling_factor);
    f.optional("shared_gate", s.shared_gate);
    f.optional("router_norm", s.router_norm);
    f.optional("router_logit_scale", s.router_logit_scale);
    f.optional("expert_scales", s.expert_scales);
    f.optional("layer_scales", s.layer_scales);
    f.optional("logit_softcap", s.logit_softcap);
    f.optional("delete_token_id", s.delete_token_id);
    f.optional("split_token_id", s.split_token_id);
    f.optional("coreset_size", s.coreset_size);
    f.optional("history_q_scale", s.history_q_scale);
    f.optional("preview_value_beta", s.preview_value_beta);
    f.optional("preview_decay", s.preview_decay);
    f.optional("history_ref_rows", s.history_ref_rows);
    f.optional("delta_preview", s.delta_preview);
    f.optional("mask", s.mask);
    f.optional("block_origin", s.block_origin);
    f.optional("logit_shift", s.logit_shift);
    f.optional("block_seed", s.block_seed);
    f.optional("drafts_for_layers", s.drafts_for_layers);
}

Strategy strategy_from(const Fields &f, const std::string &name) {
    const char *const names[] = {"low_confidence_dynamic", "low_confidence_static", "sequential", "entropy_bounded"};
    for (int i = 0; i < 4; i++)
        if (name == names[i])
            return Strategy(i);
    f.bad("strategy", "\"" + name +
                          "\" is none of \"low_confidence_dynamic\", \"low_confidence_static\", \"sequential\", "
                          "\"entropy_bounded\"");
}

} // namespace

namespace {

// The place of a name among those of an enumeration.
template <class Enum> void read_name(Fields &f, const char *field, const std::vector<std::string> &names, Enum &out) {
    std::string name;
    if (!f.optional(field, name))
        return;
    const auto at = std::find(names.begin(), names.end(), name);
    std::string known;
    for (const std::string &each : names)
        known += (known.empty() ? "\"" : ", \"") + each + "\"";
    if (at == names.end())
        f.bad(field, "\"" + name + "\" is none of " + known);
    out = static_cast<Enum>(at - names.begin());
}

void read_unmasking(Fields &f, DecodeOptions &o) {
    read_name(f, "cache", {"none", "prefix", "dual"}, o.cache);
    read_name(f, "confidence", {"probability", "margin", "entropy", "random"}, o.unmasking.confidence);
    f.optional("confidence_temperature", o.unmasking.confidence_temperature);
    f.optional("eps", o.unmasking.eps);
    f.optional("stop_penalty", o.stop_penalty);
}

} // namespace

Spec spec_from(const py::dict &dict) {
    Fields f(dict, spec_failure);
    Spec s;
    f.required("vocab_size", s.vocab_size);
    f.required("valid_vocab", s.valid_vocab);
    f.required("hidden_size", s.hidden_size);
    f.required("rms_eps", s.rms_eps);
    f.required("norm_offset", s.norm_offset);
    read_layers(f, s);
    read_mixers(f, s);
    read_feed_forward(f, s);
    f.required("tie_embeddings", s.tie_embeddings);
    f.required("max_positions", s.max_positions);
    read_preview(f, s);
    read_choices(f, s);
    f.done();
    return s;
}

std::vector<TensorRow> table_from(const py::list &list) {
    std::vector<TensorRow> table;
    for (py::handle item : list) {
        TensorRow row;
        const auto fail = [&row](const std::string &field, const std::string &reason) {
            throw FormatError("table", row.name.empty() ? "a row" : row.name, "\"" + field + "\" " + reason);
        };
        if (!py::isinstance<py::dict>(item))
            fail("row", "is no dictionary but " + type_name(item));
        Fields f(py::reinterpret_borrow<py::dict>(item), fail);
        f.required("name", row.name);
        f.required("scheme", row.scheme);
        f.required("shape", row.shape);
        f.required("file", row.file);
        f.required("offset", row.offset);
        f.required("bytes", row.bytes);
        f.optional("group", row.group);
        f.optional("stride", row.stride);
        f.optional("codebook", row.codebook);
        f.done();
        table.push_back(row);
    }
    return table;
}

DecodeOptions options_from(const py::dict &dict) {
    Fields f(dict, option_failure);
    DecodeOptions o;
    std::string mode;
    if (f.optional("mode", mode)) {
        const std::map<std::string, DecodeMode> modes = {{"diffusion", DecodeMode::diffusion},
                                                         {"ar", DecodeMode::autoregressive},
                                                         {"speculative", DecodeMode::speculative}};
        if (!modes.count(mode))
            f.bad("mode", "\"" + mode + "\" is none of \"diffusion\", \"ar\", \"speculative\"");
        o.mode = modes.at(mode);
    }
    f.optional("max_new_tokens", o.max_new_tokens);
    if (f.optional("block_length", o.block_length) && o.block_length < 1)
        f.bad("block_length", std::to_string(o.block_length) + " is below 1");
    f.optional("threshold", o.policy.threshold);
    f.optional("steps", o.policy.steps);
    f.optional("fixed_schedule", o.fixed_schedule);
    f.optional("edit_threshold", o.editing.threshold);
    f.optional("max_post_steps", o.editing.max_post_steps);
    f.optional("sub_block", o.sub_block);
    read_unmasking(f, o);
    f.optional("t_min", o.renoise.t_min);
    f.optional("t_max", o.renoise.t_max);
    if (f.optional("entropy_bound", o.renoise.entropy_bound)) // defaults differ
        o.strategy.entropy_bound = o.renoise.entropy_bound;
    std::string strategy;
    if (f.optional("strategy", strategy))
        o.strategy.strategy = strategy_from(f, strategy);
    f.optional("factor", o.strategy.factor);
    f.optional("credit", o.credit);
    f.optional("stability_threshold", o.renoise.stability_threshold);
    f.optional("confidence_threshold", o.renoise.confidence_threshold);
    f.optional("temperature", o.sampling.temperature);
    f.optional("top_k", o.sampling.top_k);
    f.optional("top_p", o.sampling.top_p);
    f.optional("seed", o.sampling.seed);
    f.optional("presence_penalty", o.sampling.presence_penalty);
    f.optional("frequency_penalty", o.sampling.frequency_penalty);
    f.optional("repetition_penalty", o.sampling.repetition_penalty);
    f.optional("stop_ids", o.stop_ids);
    if (f.optional("coreset", o.coreset) && o.coreset < 0)
        f.bad("coreset", std::to_string(o.coreset) + " is negative");
    f.optional("coreset_share", o.coreset_share);
    f.optional("logprobs", o.logprobs);
    f.optional("commit_last", o.commit_last);
    f.optional("mark", o.mark);
    f.optional("skip_rows", o.skip_rows);
    f.optional("refresh", o.refresh);
    f.optional("fused_commit", o.fused_commit);
    f.done();
    return o;
}

Logits logits_from(const std::string &name) {
    if (name == "last")
        return Logits::last;
    if (name == "all")
        return Logits::all;
    if (name != "none")
        throw ArgumentError("logits \"" + name + "\" is none of \"last\", \"all\", \"none\"");
    return Logits::none;
}

} // namespace clover

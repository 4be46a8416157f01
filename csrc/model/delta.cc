// Gated DeltaNet: short convolution, then the gated delta rule (commits, and previews that recur) or the softmax over
// the block and its history (the other previews). Hv value heads, C channels of the convolution.
#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace clover {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// commit: the recurrence moves the state on. scratch: it runs on copies. block: softmax over the block and its history.
enum class Rule { commit, scratch, block };

// Rows of a pass that mix with each other.
struct Part {
    Rule rule;
    int row0, rows; // of the pass
    int all;        // rows of the block, computed here or kept
    const float *M; // [all, C] in front of the convolution
    int64_t ldm;
    const float *beta; // [all, Hv]
};

// beta, g [n, Hv] of one value head, from ba [n, b | a]
void gates(Pass &p, const DeltaWeights &w, const Part &part, int64_t head) {
    Scratch &s = p.model.scratch;
    const int64_t heads = p.model.spec.delta_v_heads;
    const float decay = -std::exp(w.A_log[head]);
    for (int64_t r = part.row0; r < part.row0 + part.rows; r++) {
        const float *ba = s.ba.data() + r * 2 * heads;
        s.beta.data()[r * heads + head] = sigmoid(ba[head]);
        s.g.data()[r * heads + head] = decay * softplus(ba[heads + head] + w.dt_bias[head]);
    }
}

// conv [all, C] from row0 on <- silu(convolution of [ring | M]); q and k normalised, q also times dk^-1/2 for the delta
// rule. q of rows that are not computed here is left out: those that are stand one behind the other. One item is one
// head's channels.
void convolve(Pass &p, int layer, const Part &part) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const DeltaWeights &w = p.layer(layer).delta;
    const float q_scale = part.rule == Rule::block ? 1.0f : 1.0f / std::sqrt(float(s.delta_k_dim));
    const int keys = s.delta_k_heads, dk = s.delta_k_dim, dv = s.delta_v_dim, channels = s.conv_channels();
    const float *ring = p.state.delta[size_t(layer)].ring.data();
    float *out = m.scratch.conv.data() + int64_t(part.row0) * channels;
    m.pool.run(2 * keys + s.delta_v_heads, [&](int64_t item, int) {
        const bool value = item >= 2 * keys, query = item < keys;
        const int c0 = value ? 2 * keys * dk + int(item - 2 * keys) * dv : int(item) * dk;
        m.kernels.conv(ring, part.M, part.ldm, w.conv, part.rule == Rule::block ? w.conv_right : nullptr, part.all,
                       channels, s.conv_taps, c0, c0 + (value ? dv : dk), out, channels);
        if (value)
            return gates(p, w, part, item - 2 * keys);
        for (int r = 0; query && part.rows < part.all && r < part.rows; r++) {
            const int at = p.place[size_t(part.row0 + r)] - p.committed;
            std::copy_n(out + int64_t(at) * channels + c0, at == r ? 0 : dk, out + int64_t(r) * channels + c0);
        }
        m.kernels.l2norm(out + c0, channels, query ? part.rows : part.all, 1, dk, query ? q_scale : 1.0f, out + c0,
                         channels);
    });
}

// ring [taps - 1, C] <- the last rows of [ring; M], M [rows, C] with stride ldm
void advance_ring(float *ring, const float *M, int64_t ldm, int rows, int kept, int64_t channels) {
    const int old = std::max(0, kept - rows);
    for (int i = 0; i < old; i++)
        std::copy_n(ring + (i + kept - old) * channels, channels, ring + i * channels);
    for (int i = old; i < kept; i++)
        std::copy_n(M + (rows - kept + i) * ldm, channels, ring + i * channels);
}

// What truncate() replays: M, k and v, g, beta of all rows of a commit
void record_rows(Pass &p, DeltaRecord &record) {
    const Spec &s = p.model.spec;
    const Scratch &from = p.model.scratch;
    const int64_t channels = s.conv_channels(), kv = s.key_width() + s.value_width();
    for (int64_t r = 0; r < p.committed; r++) {
        std::copy_n(from.proj.data() + r * s.delta_in_rows(), channels, record.M.data() + r * channels);
        std::copy_n(from.conv.data() + r * channels + s.key_width(), kv, record.kv.data() + r * kv);
    }
    std::copy_n(from.g.data(), int64_t(p.committed) * s.delta_v_heads, record.g.data());
    std::copy_n(from.beta.data(), int64_t(p.committed) * s.delta_v_heads, record.beta.data());
}

// What the delta rule, the softmax and a replay of value head `head` have in common; outputs go to mixed, from row0 on.
DeltaHead head_of(Model &m, DeltaState &state, int64_t head, int row0, int rows, int worker) {
    const Spec &s = m.spec;
    DeltaHead d{};
    d.dk = s.delta_k_dim;
    d.dv = s.delta_v_dim;
    d.rows = rows;
    d.ldg = s.delta_v_heads;
    d.state = state.S.data() + head * s.delta_k_dim * s.delta_v_dim;
    d.o = m.scratch.mixed.row(row0) + head * s.delta_v_dim;
    d.ldo = s.value_width();
    d.scratch = m.scratch.mixer_work.data() + worker * m.scratch.mixer_share;
    return d;
}

void commit_head(const Model &m, const DeltaHead &d) {
    m.delta_closed &&d.rows > 1 ? m.kernels.delta_closed(d) : m.kernels.delta_commit(d);
}

// The same on a copy of S.
void scratch_head(Model &m, DeltaHead d, int worker) {
    const int64_t size = int64_t(d.dk) * d.dv;
    float *S = m.scratch.delta_state.data() + worker * size;
    std::copy_n(d.state, size, S);
    d.state = S;
    commit_head(m, d);
}

// mixed [n, Hv*dv] <- gated norm of the heads' outputs
void mix_heads(Pass &p, int layer, const Part &part) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const DeltaWeights &w = p.layer(layer).delta;
    const int64_t per_key = s.delta_v_heads / s.delta_k_heads, channels = s.conv_channels();
    const float *conv = m.scratch.conv.data() + part.row0 * channels;
    const float log_width = float(std::log(p.history_width / s.history_ref_rows));
    m.pool.run(s.delta_v_heads, [&](int64_t h, int worker) {
        DeltaHead d = head_of(m, p.state.delta[size_t(layer)], h, part.row0, part.all, worker);
        d.q = conv + h / per_key * s.delta_k_dim;
        d.k = d.q + s.key_width();
        d.v = conv + 2 * s.key_width() + h * s.delta_v_dim;
        d.ldqk = d.ldv = channels;
        d.g = m.scratch.g.data() + part.row0 * s.delta_v_heads + h;
        d.beta = part.beta + h;
        if (part.rule == Rule::commit) {
            commit_head(m, d);
        } else if (part.rule == Rule::scratch) {
            scratch_head(m, d, worker);
        } else {
            const float history_scale = s.history_q_scale ? 1.0f / std::sqrt(float(s.delta_k_dim)) : 1.0f;
            m.kernels.delta_preview({d, part.rows, w.logit_scale[h], w.history_bias[h] + w.history_c[h] * log_width,
                                     history_scale, s.preview_value_beta});
        }
        const float *z = m.scratch.proj.data() + part.row0 * int64_t(s.delta_in_rows()) + channels + h * s.delta_v_dim;
        m.kernels.gated_norm(d.o, d.ldo, z, s.delta_in_rows(), w.norm, s.rms_eps, part.rows, 1, s.delta_v_dim);
    });
}

// Rows of the pass that all are computed here.
Part part_of(Pass &p, Rule rule, int row0, int rows) {
    const Spec &s = p.model.spec;
    const Scratch &from = p.model.scratch;
    return {rule,
            row0,
            rows,
            rows,
            from.proj.data() + int64_t(row0) * s.delta_in_rows(),
            s.delta_in_rows(),
            from.beta.data() + int64_t(row0) * s.delta_v_heads};
}

void commit_part(Pass &p, int layer) {
    const Spec &s = p.model.spec;
    const Part part = part_of(p, Rule::commit, 0, p.settled);
    convolve(p, layer, part);
    if (DeltaRecord *record = p.record(layer))
        record_rows(p, *record);
    advance_ring(p.state.delta[size_t(layer)].ring.data(), part.M, part.ldm, part.rows, s.conv_taps - 1,
                 s.conv_channels());
    mix_heads(p, layer, part);
}

// What the block keeps of its rows <- what is new of them
void keep_rows(Pass &p, int layer, const Part &part) {
    const Spec &s = p.model.spec;
    Block &block = *p.block;
    for (int r = part.row0; r < part.row0 + part.rows; r++) {
        const int64_t at = p.place[size_t(r)] - p.committed;
        std::copy_n(p.model.scratch.proj.data() + int64_t(r) * s.delta_in_rows(), s.conv_channels(),
                    block.M[size_t(layer)].data() + at * s.conv_channels());
        for (int h = 0; h < s.delta_v_heads; h++)
            block.beta[size_t(layer)].data()[at * s.delta_v_heads + h] =
                sigmoid(p.model.scratch.ba.data()[int64_t(r) * 2 * s.delta_v_heads + h]);
    }
}

void preview_part(Pass &p, int layer) {
    const Spec &s = p.model.spec;
    Part part = part_of(p, s.causal_delta() ? Rule::scratch : Rule::block, p.committed, p.previewed());
    part.all = p.block_rows;
    if (p.block && part.rule == Rule::block) {
        keep_rows(p, layer, part);
        part.M = p.block->M[size_t(layer)].data();
        part.ldm = s.conv_channels();
        part.beta = p.block->beta[size_t(layer)].data();
    }
    convolve(p, layer, part);
    mix_heads(p, layer, part);
}

// Rows of a commit that do not settle: what the state holds must not depend on them.
void open_part(Pass &p, int layer) {
    const Part part = part_of(p, Rule::scratch, p.settled, p.committed - p.settled);
    convolve(p, layer, part);
    mix_heads(p, layer, part);
}

} // namespace

void delta_layer(Pass &p, int layer) {
    Model &m = p.model;
    Scratch &s = m.scratch;
    const DeltaWeights &w = p.layer(layer).delta;
    s.mixed.shape(m.spec.value_width());
    p.multiply({{w.in, s.x.activations(w.in, 0, p.rows), nullptr, p.rows, s.proj.data(), w.in.n},
                {w.ba, s.x.activations(w.ba, 0, p.rows), nullptr, p.rows, s.ba.data(), w.ba.n}});
    if (p.settled)
        commit_part(p, layer);
    if (p.committed > p.settled)
        open_part(p, layer);
    if (p.previewed())
        preview_part(p, layer);
    m.pool.run(p.rows, [&](int64_t r, int) { s.mixed.quantize(m.kernels, form_of(w.out), r); });
    p.multiply({{w.out, s.mixed.activations(w.out, 0, p.rows), nullptr, p.rows, s.y.data(), w.out.n}});
}

void replay_delta(Model &m, State &state, int rows) {
    const Spec &s = m.spec;
    if (!s.has(LayerKind::deltanet))
        return;
    const int64_t per_key = s.delta_v_heads / s.delta_k_heads, kv = s.key_width() + s.value_width();
    m.scratch.reserve(std::max(rows, 1));
    m.scratch.mixed.shape(s.value_width());
    for (size_t i = 0; i < state.delta.size(); i++) {
        if (s.layers[i] != LayerKind::deltanet)
            continue;
        const DeltaRecord &record = state.rollback.delta[i];
        DeltaState &to = state.delta[i];
        to.S.assign(record.S.data(), record.S.size());
        to.ring.assign(record.ring.data(), record.ring.size());
        if (rows == 0)
            continue;
        advance_ring(to.ring.data(), record.M.data(), s.conv_channels(), rows, s.conv_taps - 1, s.conv_channels());
        m.pool.run(s.delta_v_heads, [&](int64_t h, int worker) {
            DeltaHead d = head_of(m, to, h, 0, rows, worker);
            d.q = d.k = record.kv.data() + h / per_key * s.delta_k_dim; // outputs are not used, so any q will do
            d.v = record.kv.data() + s.key_width() + h * s.delta_v_dim;
            d.ldqk = d.ldv = kv;
            d.g = record.g.data() + h;
            d.beta = record.beta.data() + h;
            commit_head(m, d);
        });
    }
}

} // namespace clover

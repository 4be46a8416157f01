// Attention over the committed rows and those of the pass.
#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace clover {
namespace {

// Rotates the pairs (i, i + half) of each head's leading 2 * half dims.
void rotate(float *x, int heads, int head_dim, const float *cosine, const float *sine, int half) {
    for (int h = 0; h < heads; h++, x += head_dim)
        for (int i = 0; i < half; i++) {
            const float a = x[i], b = x[i + half];
            x[i] = a * cosine[i] - b * sine[i];
            x[i + half] = b * cosine[i] + a * sine[i];
        }
}

// x *= what the model's queries grow by with their position
void scale_query(const Spec &s, int64_t position, float *x, int64_t n) {
    if (s.query_scale_beta == 0)
        return;
    const double turns = double(position / s.query_scale_positions);
    const float factor = float(1 + s.query_scale_beta * std::log1p(turns));
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

// x += bias
void add_bias(float *x, const float *bias, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] += bias[i];
}

// out [heads, hd] <- norm(x) of each head; without norms a copy. May work in place.
void norm_heads(const Model &m, const float *x, int heads, int hd, const float *norm, float *out) {
    if (norm)
        m.kernels.rmsnorm(x, hd, norm, m.spec.norm_offset, m.spec.rms_eps, heads, hd, out, hd);
    else if (out != x)
        std::copy_n(x, heads * hd, out);
}

// v_row [kv] of one row: v, or k where the layer has no values of its own, normalised where the model asks for it
const float *values_of(Model &m, const AttentionShape &s, const float *k_or_v, float *v_row) {
    if (!m.spec.v_norm)
        return k_or_v;
    m.kernels.rmsnorm(k_or_v, s.head_dim, m.scratch.ones.data(), 0, m.spec.rms_eps, s.kv_heads, s.head_dim, v_row,
                      s.head_dim);
    return v_row;
}

// q of one row <- rope(norm(q)), scaled
void place_query(const Pass &p, int64_t r, const AttentionShape &s, const float *norm, const float *cosine,
                 const float *sine, float *q) {
    norm_heads(p.model, q, s.heads, s.head_dim, norm, q);
    rotate(q, s.heads, s.head_dim, cosine, sine, s.rotary_dim / 2);
    scale_query(p.model.spec, p.start + p.place[size_t(p.row0 + r)], q, s.q_width());
}

// proj [n, q | gate | k | v] += bias: q <- rope(norm(q)), scaled, in place; the rows' places in the cache <-
// rope(norm(k)), norm(v). `first`: columns in front of it, if any, are not there, and q is left alone.
void place_heads(Pass &p, int layer, int64_t first) {
    Model &m = p.model;
    const AttentionShape s = m.spec.attention(layer);
    const AttentionWeights &w = p.layer(layer).attn;
    KvCache &cache = p.state.kv[size_t(layer)];
    const KvFormat format = p.state.format;
    const int64_t width = s.in_rows(), kv = s.kv_width(), part = kv_bytes(format, s.head_dim);
    const int64_t stored = (m.spec.v_norm ? 2 : 1) * kv; // floats of kv_row
    const int half = s.rotary_dim / 2, hd = s.head_dim;
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *q = p.proj(s) + r * width;
        const float *last = q + width - kv, *raw_k = s.own_values ? last - kv : last;
        const float *cosine = p.angles(layer) + r * 2 * half, *sine = cosine + half;
        float *k = m.scratch.kv_row.data() + r * stored;
        if (w.in_bias)
            add_bias(q + first, w.in_bias + first, width - first);
        if (first == 0)
            place_query(p, r, s, w.q_norm, cosine, sine, q);
        norm_heads(m, raw_k, s.kv_heads, hd, w.k_norm, k);
        const float *v = values_of(m, s, last, k + kv);
        rotate(k, s.kv_heads, hd, cosine, sine, half);
        const int64_t at = (p.start + p.place[size_t(p.row0 + r)]) * p.state.kv_row_bytes(layer);
        for (int h = 0; h < s.kv_heads; h++) {
            store_kv(format, k + h * hd, hd, cache.k.data() + at + h * part);
            store_kv(format, v + h * hd, hd, cache.v.data() + at + h * part);
        }
    });
}

// mixed [n, nh*hd] <- attention of every query head. A piece of work is a span of rows and the query heads of one
// key/value head, or a share of these heads where there are more threads than pieces.
void attend(Pass &p, int layer) {
    Model &m = p.model;
    const AttentionShape s = m.spec.attention(layer);
    const KvCache &cache = p.state.kv[size_t(layer)];
    const int shared = s.heads / s.kv_heads, hd = s.head_dim;
    const int stretches = int(p.spans().size());
    const int shares = std::min(shared, (m.pool.size() + stretches * s.kv_heads - 1) / (stretches * s.kv_heads));
    m.pool.run(int64_t(stretches) * s.kv_heads * shares, [&](int64_t item, int worker) {
        const int share = int(item % shares), stretch = int(item / shares % stretches);
        const int kv = int(item / shares / stretches);
        const auto [row0, rows, begin, end, causal] = p.spans()[size_t(stretch)];
        const int head0 = shared * share / shares;
        AttentionHeads a{};
        a.rows = rows;
        a.heads = shared * (share + 1) / shares - head0;
        a.head_dim = hd;
        a.q = p.proj(s) + row0 * int64_t(s.in_rows()) + (kv * shared + head0) * hd;
        a.ldq = s.in_rows();
        a.format = p.state.format;
        a.k = cache.k.data() + kv * kv_bytes(a.format, hd);
        a.v = cache.v.data() + kv * kv_bytes(a.format, hd);
        a.ldkv = p.state.kv_row_bytes(layer);
        a.past = int(p.start) + begin;
        a.causal = causal;
        a.first = row0; // where causal, a row's place
        a.seen = end - begin;
        a.scale = m.spec.attn_scale;
        a.window = m.spec.window(layer);
        a.o = m.scratch.mixed.row(row0) + (kv * shared + head0) * hd;
        a.ldo = s.q_width();
        a.scratch = m.scratch.mixer_work.data() + worker * m.scratch.mixer_share;
        m.kernels.attention(a);
    });
}

// mixed *= sigmoid(gate)
void gate_heads(Pass &p, int layer, Forms forms) {
    Model &m = p.model;
    const AttentionShape s = m.spec.attention(layer);
    const int width = s.q_width();
    m.pool.run(p.rows, [&](int64_t r, int) {
        const float *gate = p.proj(s) + r * s.in_rows() + width;
        if (s.gate)
            m.kernels.sigmoid_mul(m.scratch.mixed.row(r), width, gate, width, 1, width);
        m.scratch.mixed.quantize(m.kernels, forms, r);
    });
}

} // namespace

void attention_inputs(Pass &p, int layer) {
    const AttentionWeights &w = p.layer(layer).attn;
    float *proj = p.proj(p.model.spec.attention(layer));
    p.multiply({{w.in, p.model.scratch.x.activations(w.in, 0, p.rows), nullptr, p.rows, proj, w.in.n}});
    place_heads(p, layer, 0);
}

void attention_layer(Pass &p, int layer) {
    Scratch &s = p.model.scratch;
    const AttentionWeights &w = p.layer(layer).attn;
    s.mixed.shape(w.out.k);
    attend(p, layer);
    gate_heads(p, layer, form_of(w.out));
    p.multiply({{w.out, s.mixed.activations(w.out, 0, p.rows), nullptr, p.rows, p.y(), w.out.n}});
    if (w.out_bias)
        p.model.pool.run(p.rows, [&](int64_t r, int) { add_bias(p.y() + r * w.out.n, w.out_bias, w.out.n); });
}

void context_layer(Pass &p, int layer) {
    Scratch &s = p.model.scratch;
    const Matrix &in = p.layer(layer).attn.in;
    const AttentionShape shape = p.model.spec.attention(layer);
    const int keys = in.n - (shape.own_values ? 2 : 1) * shape.kv_width();
    const int first = keys / kTileRows * kTileRows; // with the last queries, where a tile holds both
    const Matrix w = rows_from(in, first);
    p.multiply({{w, s.x.activations(w, 0, p.rows), nullptr, p.rows, s.proj.data() + first, in.n}});
    place_heads(p, layer, first);
}

} // namespace clover

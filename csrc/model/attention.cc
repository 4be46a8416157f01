// Gated attention over the committed rows and those of the pass.
#include <algorithm>

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

// proj [n, q | gate | k | v]: q <- rope(norm(q)) in place; cache rows [position, position + n) <- rope(norm(k)), v
void place_heads(Pass &p, int layer) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const AttentionWeights &w = p.layer(layer).attn;
    KvCache &cache = p.state.kv[size_t(layer)];
    const int64_t width = s.attn_in_rows(), kv = s.kv_width();
    const int half = s.rotary_dim / 2, hd = s.head_dim;
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *q = m.scratch.proj.data() + r * width;
        const float *v = q + width - kv, *k = v - kv;
        const float *cosine = m.scratch.rope.data() + r * 2 * half, *sine = cosine + half;
        float *k_row = cache.k.data() + (p.state.position + r) * kv;
        m.kernels.rmsnorm(q, hd, w.q_norm, s.norm_offset, s.rms_eps, s.num_heads, hd, q, hd);
        m.kernels.rmsnorm(k, hd, w.k_norm, s.norm_offset, s.rms_eps, s.num_kv_heads, hd, k_row, hd);
        rotate(q, s.num_heads, hd, cosine, sine, half);
        rotate(k_row, s.num_kv_heads, hd, cosine, sine, half);
        std::copy_n(v, kv, cache.v.data() + (p.state.position + r) * kv);
    });
}

// mixed [n, nh*hd] <- attention of every query head
void attend(Pass &p, int layer) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const KvCache &cache = p.state.kv[size_t(layer)];
    const int per_kv = s.num_heads / s.num_kv_heads;
    m.pool.run(s.num_heads, [&](int64_t h, int) {
        AttentionHead a{};
        a.rows = p.rows;
        a.head_dim = s.head_dim;
        a.q = m.scratch.proj.data() + h * s.head_dim;
        a.ldq = s.attn_in_rows();
        a.k = cache.k.data() + h / per_kv * s.head_dim;
        a.v = cache.v.data() + h / per_kv * s.head_dim;
        a.ldkv = s.kv_width();
        a.past = int(p.state.position);
        a.causal = p.mode == Mode::commit;
        a.scale = s.attn_scale;
        a.o = m.scratch.mixed.row(0) + h * s.head_dim;
        a.ldo = s.q_width();
        m.kernels.attention(a);
    });
}

// mixed *= sigmoid(gate)
void gate_heads(Pass &p, Forms forms) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const int width = s.q_width();
    m.pool.run(p.rows, [&](int64_t r, int) {
        const float *gate = m.scratch.proj.data() + r * s.attn_in_rows() + width;
        if (s.attn_output_gate)
            m.kernels.sigmoid_mul(m.scratch.mixed.row(r), width, gate, width, 1, width);
        m.scratch.mixed.quantize(m.kernels, forms, r);
    });
}

} // namespace

void attention_layer(Pass &p, int layer) {
    Scratch &s = p.model.scratch;
    const AttentionWeights &w = p.layer(layer).attn;
    s.mixed.shape(p.model.spec.q_width());
    p.multiply({{w.in, s.x.activations(w.in, 0, p.rows), nullptr, p.rows, s.proj.data(), w.in.n}});
    place_heads(p, layer);
    attend(p, layer);
    gate_heads(p, form_of(w.out));
    p.multiply({{w.out, s.mixed.activations(w.out, 0, p.rows), nullptr, p.rows, s.y.data(), w.out.n}});
}

} // namespace clover

// What mixes rows: the gated delta rule in its three forms, and attention.
#include "kernels/reference.h"

#include <cmath>
#include <limits>

namespace clover::reference {

namespace {

float dot(const float *a, const float *b, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

// out[j] = sum_i S[i, j] x[i]
void read_state(const DeltaHead &h, const float *x, float *out) {
    for (int j = 0; j < h.dv; ++j)
        out[j] = 0;
    for (int i = 0; i < h.dk; ++i)
        for (int j = 0; j < h.dv; ++j)
            out[j] += h.state[int64_t(i) * h.dv + j] * x[i];
}

// Turns `n` scores into softmax weights.
void softmax(float *scores, int n) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int i = 0; i < n; ++i)
        max = std::fmax(max, scores[i]);
    for (int i = 0; i < n; ++i)
        sum += scores[i] = std::exp(scores[i] - max);
    for (int i = 0; i < n; ++i)
        scores[i] /= sum;
}

} // namespace

void delta_commit(const DeltaHead &h) {
    float *d = h.scratch; // [dv]
    const int64_t size = int64_t(h.dk) * h.dv;
    for (int t = 0; t < h.rows; ++t) {
        const float *q = h.q + t * h.ldqk, *k = h.k + t * h.ldqk, *v = h.v + t * h.ldv;
        const float decay = std::exp(h.g[t * h.ldg]), beta = h.beta[t * h.ldg];
        for (int64_t i = 0; i < size; ++i)
            h.state[i] *= decay;
        read_state(h, k, d);
        for (int j = 0; j < h.dv; ++j)
            d[j] = beta * (v[j] - d[j]);
        for (int i = 0; i < h.dk; ++i)
            for (int j = 0; j < h.dv; ++j)
                h.state[int64_t(i) * h.dv + j] += k[i] * d[j];
        read_state(h, q, h.o + t * h.ldo);
    }
}

// V' = T (diag(beta) V - diag(beta e^G) K S) by forward substitution, so that T is never formed.
// Decays e^(G_i - G_j) are running products of factors <= 1: nothing can overflow.
void delta_closed(const DeltaHead &h) {
    const int n = h.rows, dk = h.dk, dv = h.dv;
    float *fresh = h.scratch;               // V' [n, dv]
    float *decay = fresh + int64_t(n) * dv; // [n], row i: e^(G_i - G_j) for j <= i
    float since = 1;                        // e^(G_i)
    for (int i = 0; i < n; ++i) {
        const float *q = h.q + i * h.ldqk, *k = h.k + i * h.ldqk, *v = h.v + i * h.ldv;
        const float step = std::exp(h.g[i * h.ldg]), beta = h.beta[i * h.ldg];
        since *= step;
        for (int j = 0; j < i; ++j)
            decay[j] *= step;
        decay[i] = 1;
        float *vi = fresh + int64_t(i) * dv, *oi = h.o + i * h.ldo;
        read_state(h, k, vi);
        read_state(h, q, oi);
        for (int c = 0; c < dv; ++c) {
            vi[c] = beta * (v[c] - since * vi[c]);
            oi[c] *= since;
        }
        for (int j = 0; j <= i; ++j) {
            const float *vj = fresh + int64_t(j) * dv, *kj = h.k + j * h.ldqk;
            const float mix = j < i ? beta * dot(k, kj, dk) * decay[j] : 0, score = dot(q, kj, dk) * decay[j];
            for (int c = 0; j < i && c < dv; ++c)
                vi[c] -= mix * vj[c];
            for (int c = 0; c < dv; ++c)
                oi[c] += score * vj[c];
        }
    }
    for (int a = 0; a < dk; ++a)
        for (int c = 0; c < dv; ++c) {
            float sum = since * h.state[int64_t(a) * dv + c];
            for (int i = 0; i < n; ++i)
                sum += h.k[i * h.ldqk + a] * decay[i] * fresh[int64_t(i) * dv + c];
            h.state[int64_t(a) * dv + c] = sum;
        }
}

void delta_preview(const PreviewHead &p) {
    const DeltaHead &h = p.d;
    const int n = h.rows;
    float *weights = h.scratch, *history = weights + n + 1; // softmax over the rows and the history
    for (int t = 0; t < p.queries; ++t) {
        const float *q = h.q + t * h.ldqk;
        for (int s = 0; s < n; ++s)
            weights[s] = p.logit_scale * dot(q, h.k + s * h.ldqk, h.dk);
        weights[n] = p.history_logit;
        softmax(weights, n + 1);
        read_state(h, q, history);
        float *o = h.o + t * h.ldo;
        for (int c = 0; c < h.dv; ++c)
            o[c] = weights[n] * p.history_scale * history[c];
        for (int s = 0; s < n; ++s) {
            const float weight = p.value_beta ? weights[s] * h.beta[s * h.ldg] : weights[s];
            for (int c = 0; c < h.dv; ++c)
                o[c] += weight * h.v[s * h.ldv + c];
        }
    }
}

void attention(const AttentionHeads &h) {
    float *key = h.scratch, *value = key + h.head_dim;
    for (int query = 0; query < h.rows * h.heads; ++query) {
        const int r = query / h.heads;
        const float *q = h.q + r * h.ldq + query % h.heads * h.head_dim;
        float *o = h.o + r * h.ldo + query % h.heads * h.head_dim;
        for (int c = 0; c < h.head_dim; ++c)
            o[c] = 0;
        const int keys = h.past + (h.causal ? h.first + r + 1 : h.seen);
        float max = -std::numeric_limits<float>::infinity(), sum = 0;
        const int nearest = h.causal ? keys : h.past + 1;
        for (int j = h.window && nearest > h.window ? nearest - h.window : 0; j < keys; ++j) {
            load_kv(h.format, h.k + j * h.ldkv, h.head_dim, key);
            load_kv(h.format, h.v + j * h.ldkv, h.head_dim, value);
            const float score = h.scale * dot(q, key, h.head_dim);
            const float old = score > max ? std::exp(max - score) : 1.0f;
            max = score > max ? score : max;
            const float weight = std::exp(score - max);
            sum = sum * old + weight;
            for (int c = 0; c < h.head_dim; ++c)
                o[c] = o[c] * old + weight * value[c];
        }
        for (int c = 0; c < h.head_dim; ++c)
            o[c] /= sum;
    }
}

} // namespace clover::reference

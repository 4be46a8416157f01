// Quantised arithmetic and row-wise operations. Mixers: reference_mixers.cc.
#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/half.h"

namespace clover::reference {

namespace {

#include "kernels/layout.h"

float from_bf16(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

// One group of one row: its scale and where its codes are (quant/tiles.py).
struct PackedGroup {
    float scale;
    const uint8_t *codes;
    int row; // within the tile
    const Matrix &w;

    int value(int k) const { // of column k of the group, without the scale
        const int byte = 4 * row + k % 4, chunk = k / 4;
        if (w.scheme == Scheme::int8)
            return static_cast<int8_t>(codes[64 * chunk + byte]);
        if (w.scheme == Scheme::int3) {
            const int low = codes[chunk / 4 * 64 + byte] >> (chunk % 4 * 2) & 3;
            return low + 4 * (codes[256 + chunk / 8 * 64 + byte] >> (chunk % 8) & 1) - 4;
        }
        const int code = codes[chunk / 2 * 64 + byte] >> (chunk % 2 * 4) & 15;
        return w.codebook ? w.codebook[code] : code - 8;
    }
};

PackedGroup packed_group(const Matrix &w, int row, int g) {
    const uint8_t *bytes = tile_group(w, row / kTileRows, g);
    const int in_tile = row % kTileRows;
    return {from_f16(bytes + 2 * in_tile), bytes + 2 * kTileRows, in_tile, w};
}

float weight(const Matrix &w, int64_t row, int k) {
    if (w.scheme == Scheme::f32)
        return static_cast<const float *>(w.data)[row * w.k + k];
    return from_bf16(static_cast<const uint16_t *>(w.data)[row * w.k + k]);
}

float dot_float(const Matrix &w, int row, const float *x) {
    double sum = 0;
    for (int k = 0; k < w.k; ++k)
        sum += static_cast<double>(weight(w, row, k)) * x[k];
    return static_cast<float>(sum);
}

// Exact integers inside a group, one fused multiply-add for each group of a block of activations and one
// for the block, in order: the vector tables do the same and give the same bits.
float dot_packed(const Matrix &w, int row, const Activations &a, int64_t r) {
    const int8_t *q = a.q + r * a.ldq;
    float sum = 0;
    for (int k0 = 0; k0 < w.k; k0 += a.block) {
        float part = 0;
        for (int g = k0 / w.group; g < (k0 + a.block) / w.group; ++g) {
            const PackedGroup packed = packed_group(w, row, g);
            int32_t dot = 0;
            for (int k = 0; k < w.group; ++k)
                dot += packed.value(k) * q[g * w.group + k];
            part = std::fmaf(static_cast<float>(dot), packed.scale, part);
        }
        sum = std::fmaf(part, a.scale[(r * w.k + k0) / a.block], sum);
    }
    return sum;
}

float dot(const MatmulCall &call, int column, int row) {
    const int64_t source = source_row(call, row);
    if (call.w.group)
        return dot_packed(call.w, column, call.a, source);
    return dot_float(call.w, column, call.a.x + source * call.a.ldx);
}

float head_logit(const MatmulCall &call, int id, int row) {
    return call.w.data ? dot(call, id, row) : call.a.x[source_row(call, row) * call.a.ldx + id];
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float rsqrt_mean(const float *x, int n, float eps) {
    double squares = 0;
    for (int i = 0; i < n; ++i)
        squares += static_cast<double>(x[i]) * x[i];
    return static_cast<float>(1.0 / std::sqrt(squares / n + eps));
}

} // namespace

float from_f16(const uint8_t *bytes) { return from_half(static_cast<uint16_t>(bytes[0] | bytes[1] << 8)); }

void quantize(const float *x, int64_t ldx, int rows, int k, int block, int8_t *q, int ldq, float *scale,
              int32_t *sum32) {
    for (int r = 0; r < rows; ++r)
        for (int b = 0; b < k; b += block) {
            const float *in = x + r * ldx + b;
            int8_t *codes = q + int64_t(r) * ldq + b;
            float max = 0;
            bool finite = true;
            for (int i = 0; i < block; ++i) {
                finite = finite && std::isfinite(in[i]);
                max = std::fmax(max, std::fabs(in[i]));
            }
            // A NaN or an infinity must reach the output: codes cannot carry it, the scale can.
            const bool zero = !finite || max < kSmallestMax;
            const float inverse = zero ? 0.0f : 127.0f / max;
            for (int i = 0; i < block; ++i)
                codes[i] = zero ? 0 : static_cast<int8_t>(std::nearbyint(in[i] * inverse));
            for (int i = 0; i < block; i += 32)
                *sum32++ = std::accumulate(codes + i, codes + i + 32, int32_t(0));
            *scale++ = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : max / 127.0f;
        }
}

void matmul(const MatmulCall &call) {
    const Columns range = columns(call);
    for (int r = 0; r < call.rows; ++r)
        for (int i = range.first; i < range.last; ++i)
            call.y[r * call.ldy + i] = dot(call, i, r);
}

void dequantize_row(const Matrix &w, int row, float *out) {
    if (!w.group) {
        for (int k = 0; k < w.k; ++k)
            out[k] = weight(w, row, k);
        return;
    }
    for (int g = 0; g < w.k / w.group; ++g) {
        const PackedGroup packed = packed_group(w, row, g);
        for (int k = 0; k < w.group; ++k)
            out[g * w.group + k] = packed.scale * static_cast<float>(packed.value(k));
    }
}

void rmsnorm(const float *x, int64_t ldx, const float *w, float offset, float eps, int rows, int n, float *out,
             int64_t ldo) {
    for (int r = 0; r < rows; ++r) {
        const float factor = rsqrt_mean(x + r * ldx, n, eps);
        for (int i = 0; i < n; ++i)
            out[r * ldo + i] = x[r * ldx + i] * factor * (w[i] + offset);
    }
}

void l2norm(const float *x, int64_t ldx, int rows, int heads, int d, float scale, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
            const float *in = x + r * ldx + h * d;
            double squares = 0;
            for (int i = 0; i < d; ++i)
                squares += static_cast<double>(in[i]) * in[i];
            const float factor = static_cast<float>(1.0 / std::sqrt(squares + 1e-6)) * scale;
            for (int i = 0; i < d; ++i)
                out[r * ldo + h * d + i] = in[i] * factor;
        }
}

void silu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < n; ++i) {
            const float g = gate[r * ldg + i];
            out[r * ldo + i] = g * sigmoid(g) * up[r * ldu + i];
        }
}

void gelu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < n; ++i) {
            const float g = gate[r * ldg + i], inner = kGeluLinear * g + kGeluCubic * g * g * g;
            out[r * ldo + i] = g * sigmoid(inner) * up[r * ldu + i];
        }
}

void conv(const float *ring, const float *block, int64_t ldb, const float *w, const float *right, int rows,
          int channels, int taps, int c0, int c1, float *out, int64_t ldo) {
    const int past = taps - 1; // rows of the ring
    for (int t = 0; t < rows; ++t)
        for (int c = c0; c < c1; ++c) {
            float sum = 0;
            for (int j = 0; j < taps; ++j) {
                const float in = t + j < past ? ring[int64_t(t + j) * channels + c] : block[(t + j - past) * ldb + c];
                sum += in * w[c * taps + j];
            }
            for (int d = 0; right && d < past && t + 1 + d < rows; ++d)
                sum += block[(t + 1 + d) * ldb + c] * right[c * past + d];
            out[t * ldo + c] = sum * sigmoid(sum);
        }
}

void gated_norm(float *o, int64_t ldo, const float *z, int64_t ldz, const float *w, float eps, int rows, int heads,
                int dv) {
    for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
            float *x = o + r * ldo + h * dv;
            const float *gate = z + r * ldz + h * dv;
            const float factor = rsqrt_mean(x, dv, eps);
            for (int i = 0; i < dv; ++i)
                x[i] = x[i] * factor * w[i] * gate[i] * sigmoid(gate[i]);
        }
}

void sigmoid_mul(float *x, int64_t ldx, const float *gate, int64_t ldg, int rows, int n) {
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < n; ++i)
            x[r * ldx + i] *= sigmoid(gate[r * ldg + i]);
}

void head_logits(const MatmulCall &call, const HeadRule &rule, float *out) {
    const int first = call.tile0 * kTileRows, last = columns(call).last;
    for (int r = 0; r < call.rows; ++r)
        for (int i = 0; i < kHeadStripe; ++i) {
            const int id = first + i;
            const bool real = id < last && id < rule.valid && id != rule.banned;
            float z = real ? head_logit(call, id, r) : -std::numeric_limits<float>::infinity();
            if (real && rule.softcap > 0) // z - z: what is not finite must not look like the cap
                z = rule.softcap * std::tanh(z / rule.softcap) + (z - z);
            out[r * kHeadStripe + i] = z;
        }
    for (int p = 0; p < rule.penalty_count; ++p) {
        const int i = rule.penalties[p].id - first;
        for (int r = 0; r < call.rows && 0 <= i && i < kHeadStripe; ++r) {
            float &x = out[r * kHeadStripe + i];
            x = (x > 0 ? x / rule.repetition : x * rule.repetition) - rule.penalties[p].subtract;
        }
    }
}

void head_stats(const MatmulCall &call, const HeadRule &rule, float *scratch, HeadStats *out) {
    MatmulCall stripe = call;
    for (; stripe.tile0 < call.tile1; stripe.tile0 += kHeadStripe / kTileRows, out += call.rows) {
        head_logits(stripe, rule, scratch);
        for (int r = 0; r < call.rows; ++r) {
            const float *logits = scratch + r * kHeadStripe;
            HeadStats stats{-1, -std::numeric_limits<float>::infinity(), 0};
            for (int i = 0; i < kHeadStripe; ++i)
                if (logits[i] > stats.max) {
                    stats.max = logits[i];
                    stats.argmax = stripe.tile0 * kTileRows + i;
                }
            for (int i = 0; i < kHeadStripe && stats.argmax >= 0; ++i)
                stats.sum_exp += std::exp((logits[i] - stats.max) * rule.inverse_temperature);
            const bool nan = std::any_of(logits, logits + kHeadStripe, [](float x) { return std::isnan(x); });
            if (nan || std::isnan(stats.sum_exp) || (stats.argmax >= 0 && std::isinf(stats.max)))
                stats.max = stats.sum_exp = std::numeric_limits<float>::quiet_NaN();
            out[r] = stats;
        }
    }
}

} // namespace clover::reference

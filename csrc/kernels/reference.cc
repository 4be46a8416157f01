// Quantised arithmetic and row-wise operations. Mixers: reference_mixers.cc.
#include "kernels/reference.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace clover::reference {

namespace {

#include "kernels/layout.h"

float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

float from_bf16(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }

float from_f16(const uint8_t *bytes) { // little endian
    const int bits = bytes[0] | bytes[1] << 8;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
    if (exponent == 0)
        return sign * std::ldexp(static_cast<float>(fraction), -24);
    return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

// One group of one row: its scale and where its codes are.
struct PackedGroup {
    float scale;
    const uint8_t *codes;
    int row; // within the tile
    bool nibbles;

    int code(int k) const { // column k of the group, as a signed integer
        if (!nibbles)
            return static_cast<int8_t>(codes[k / 4 * 64 + row * 4 + k % 4]);
        const uint8_t byte = codes[k / 8 * 64 + row * 4 + k % 4];
        return (k % 8 < 4 ? byte & 15 : byte >> 4) - 8;
    }
};

PackedGroup packed_group(const Matrix &w, int row, int g) {
    const uint8_t *bytes = tile_group(w, row / kTileRows, g);
    const int in_tile = row % kTileRows;
    return {from_f16(bytes + 2 * in_tile), bytes + 2 * kTileRows, in_tile, w.scheme == Scheme::int4};
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

// Exact integers inside a group, one fused multiply-add per group, groups in order: the vector
// tables do the same and give the same bits.
float dot_packed(const Matrix &w, int row, const Activations &a, int64_t r) {
    const int groups = w.k / w.group;
    const int8_t *q = a.q + r * w.k;
    float sum = 0;
    for (int g = 0; g < groups; ++g) {
        const PackedGroup packed = packed_group(w, row, g);
        int32_t dot = 0;
        for (int k = 0; k < w.group; ++k)
            dot += packed.code(k) * q[g * w.group + k];
        sum = std::fmaf(static_cast<float>(dot), packed.scale * a.scale[r * groups + g], sum);
    }
    return sum;
}

float dot(const MatmulCall &call, int column, int row) {
    const int64_t source = source_row(call, row);
    if (call.w.group)
        return dot_packed(call.w, column, call.a, source);
    return dot_float(call.w, column, call.a.x + source * call.a.ldx);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float rsqrt_mean(const float *x, int n, float eps) {
    double squares = 0;
    for (int i = 0; i < n; ++i)
        squares += static_cast<double>(x[i]) * x[i];
    return static_cast<float>(1.0 / std::sqrt(squares / n + eps));
}

} // namespace

void quantize(const float *x, int64_t ldx, int rows, int k, int group, int8_t *q, float *scale, int32_t *sum) {
    const int groups = k / group;
    for (int r = 0; r < rows; ++r)
        for (int g = 0; g < groups; ++g) {
            const float *in = x + r * ldx + g * group;
            int8_t *codes = q + int64_t(r) * k + g * group;
            float max = 0;
            bool finite = true;
            for (int i = 0; i < group; ++i) {
                finite = finite && std::isfinite(in[i]);
                max = std::fmax(max, std::fabs(in[i]));
            }
            // A NaN or an infinity must reach the output: codes cannot carry it, the scale can.
            const bool zero = !finite || max < kSmallestMax;
            const float inverse = zero ? 0.0f : 127.0f / max;
            int32_t total = 0;
            for (int i = 0; i < group; ++i) {
                codes[i] = zero ? 0 : static_cast<int8_t>(std::nearbyint(in[i] * inverse));
                total += codes[i];
            }
            scale[r * groups + g] = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : max / 127.0f;
            sum[r * groups + g] = total;
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
            out[g * w.group + k] = packed.scale * static_cast<float>(packed.code(k));
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

void head_stats(const MatmulCall &call, int valid, int banned, float *, HeadStats *out) {
    const Columns range = columns(call);
    const int last = range.last < valid ? range.last : valid;
    for (int r = 0; r < call.rows; ++r) {
        HeadStats stats{-1, -std::numeric_limits<float>::infinity(), 0};
        for (int i = range.first; i < last; ++i) {
            if (i == banned)
                continue;
            const float logit = dot(call, i, r);
            if (logit > stats.max) {
                stats.sum_exp = stats.sum_exp * std::exp(stats.max - logit) + 1;
                stats.max = logit;
                stats.argmax = i;
            } else {
                stats.sum_exp += std::exp(logit - stats.max);
            }
        }
        if (std::isnan(stats.sum_exp) || (stats.argmax >= 0 && std::isinf(stats.max)))
            stats.max = std::numeric_limits<float>::quiet_NaN();
        out[r] = stats;
    }
}

} // namespace clover::reference

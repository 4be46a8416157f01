// Stored forms of keys and values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/reference.h"

namespace clover {

namespace {

constexpr float kLargestHalf = 65504.0f;

uint16_t half_bits(float x) { // nearest even; saturates
    return to_half(std::isnan(x) ? x : std::clamp(x, -kLargestHalf, kLargestHalf));
}

void store_codes(const float *x, int n, uint8_t *out) {
    float max = 0;
    bool finite = true;
    for (int i = 0; i < n; ++i) {
        finite = finite && std::isfinite(x[i]);
        max = std::max(max, std::fabs(x[i]));
    }
    // What is not finite must reach the output: codes cannot carry it, the scale can.
    const bool zero = !finite || max < 1e-36f;
    const float scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : max / 127.0f;
    const float inverse = zero ? 0.0f : 127.0f / max;
    std::memcpy(out, &scale, sizeof scale);
    for (int i = 0; i < n; ++i)
        out[4 + i] = static_cast<uint8_t>(zero ? 0 : static_cast<int8_t>(std::nearbyint(x[i] * inverse)));
}

} // namespace

void store_kv(KvFormat format, const float *x, int head_dim, uint8_t *out) {
    if (format == KvFormat::f32)
        std::memcpy(out, x, size_t(head_dim) * sizeof(float));
    else if (format == KvFormat::int8)
        store_codes(x, head_dim, out);
    else
        for (int i = 0; i < head_dim; ++i) {
            const uint16_t bits = half_bits(x[i]);
            std::memcpy(out + 2 * i, &bits, sizeof bits);
        }
}

void load_kv(KvFormat format, const uint8_t *stored, int head_dim, float *out) {
    if (format == KvFormat::f32) {
        std::memcpy(out, stored, size_t(head_dim) * sizeof(float));
        return;
    }
    float scale = 0;
    if (format == KvFormat::int8)
        std::memcpy(&scale, stored, sizeof scale);
    for (int i = 0; i < head_dim; ++i)
        out[i] = format == KvFormat::f16 ? reference::from_f16(stored + 2 * i)
                                         : scale * static_cast<float>(static_cast<int8_t>(stored[4 + i]));
}

} // namespace clover

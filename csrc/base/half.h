// IEEE binary16 as bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace clover {

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float from_half(uint16_t half) {
    // The exponent and the fraction where float32 has them; the factor mends the bias, of subnormal numbers, too.
    uint32_t bits = bits_of(float_of(uint32_t(half & 0x7fff) << 13) * float_of(0x77800000)); // 2^112
    if ((half & 0x7c00) == 0x7c00)
        bits |= 0x7f800000;
    return float_of(bits | uint32_t(half & 0x8000) << 16);
}

// Nearest, ties to even; infinity from 65520 on.
inline uint16_t to_half(float x) {
    const uint32_t all = bits_of(x), size = all & 0x7fffffff;
    const uint16_t sign = uint16_t(all >> 16 & 0x8000);
    if (size > 0x7f800000)
        return uint16_t(sign | 0x7e00);
    if (size >= 0x477ff000)
        return uint16_t(sign | 0x7c00);
    if (size < 0x38800000) // subnormal: adding 1/2 rounds to a multiple of 2^-24
        return uint16_t(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
    return uint16_t(sign | (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13);
}

} // namespace clover

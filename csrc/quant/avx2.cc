// Eight rows at a time.
#include <immintrin.h>

#include "quant/tables.h"

namespace clover::quant {

namespace {

constexpr int kLanes = 8;

#include "quant/lanes.h"

inline F root(F x) { return _mm256_sqrt_ps(x); }

inline F pick(const float (&table)[16], I index) {
    const __m256i i = reinterpret_cast<__m256i>(index);
    const __m256 low = _mm256_permutevar8x32_ps(load(table), i), high = _mm256_permutevar8x32_ps(load(table + 8), i);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28))); // bit 3 becomes the sign
}

#include "quant/coder.h"

} // namespace

const Coder kAvx2Coder = {"avx2", largest, search, split, pack, feedback, chase};

} // namespace clover::quant

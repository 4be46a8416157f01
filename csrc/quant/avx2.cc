// Eight rows at a time.
#include <immintrin.h>

#include "quant/tables.h"

namespace clover::quant {

namespace {

constexpr int kLanes = 8;

#include "quant/lanes.h"

inline F root(F x) { return _mm256_sqrt_ps(x); }

inline F pick_eight(const float *table, I index) {
    return _mm256_permutevar8x32_ps(load(table), reinterpret_cast<__m256i>(index));
}

inline F pick(const float (&table)[16], I index) {
    return index >= all(8) ? pick_eight(table + 8, index) : pick_eight(table, index);
}

#include "quant/bisect.h"

#include "quant/coder.h"

} // namespace

const Coder kAvx2Coder = {"avx2", largest, search, split, pack, feedback, chase};

} // namespace clover::quant

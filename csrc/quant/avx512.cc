// All sixteen rows of a tile at a time.
#include <immintrin.h>

#include "quant/tables.h"

namespace clover::quant {

namespace {

constexpr int kLanes = 16;

#include "quant/lanes.h"

constexpr __mmask16 kEvery = 0xffff; // the forms without a mask read an undefined vector, says GCC 12

inline F root(F x) { return _mm512_maskz_sqrt_ps(kEvery, x); }

inline F pick(const float (&table)[16], I index) {
    return _mm512_maskz_permutexvar_ps(kEvery, reinterpret_cast<__m512i>(index), load(table));
}

inline F pick_eight(const float *table, I index) {
    const __m512 eight = _mm512_castps256_ps512(_mm256_loadu_ps(table));
    return _mm512_maskz_permutexvar_ps(kEvery, reinterpret_cast<__m512i>(index), eight);
}

#include "quant/bisect.h"

#include "quant/coder.h"

} // namespace

const Coder kAvx512Coder = {"avx512", largest, search, split, pack, feedback, chase};

} // namespace clover::quant

// All sixteen rows of a tile at a time.
#include <immintrin.h>

#include "quant/tables.h"

namespace clover::quant {

namespace {

constexpr int kLanes = 16;

#include "quant/lanes.h"

inline F root(F x) { return _mm512_maskz_sqrt_ps(0xffff, x); }

inline F pick(const float (&table)[16], I index) {
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), load(table));
}

#include "quant/coder.h"

} // namespace

const Coder kAvx512Coder = {"avx512", largest, search, split, pack, feedback, chase};

} // namespace clover::quant

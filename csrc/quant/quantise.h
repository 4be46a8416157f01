// Float rows to the stored bytes of a scheme (layout 1, quant/tiles.py): scales, codes and what was lost, in one pass.
//
// The bytes depend neither on the number of threads nor on the processor: every row has its own lane, sums run down
// the columns in order, and no operation is contracted.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "quant/factor.h"
#include "quant/tables.h"

namespace clover::quant {

enum class Method {
    absmax,   // largest magnitude on the nearer outermost level: no search
    rtn,      // smallest squared error over a grid of scales, each refitted
    hqq,      // smallest sum of |error|^(3/4), by half-quadratic splitting from rtn's scale
    weighted, // as rtn, the error of a column weighted
    gptq,     // as weighted, and the error of a column is made good in the columns behind it
};

enum class Source { f32, bf16, f16 };

struct Rows { // [n, k], row major, without gaps
    const void *data;
    Source type;
    int64_t n, k;
};

struct Format {
    Scheme scheme;
    int group;              // 0 for f32 and bf16
    const int8_t *codebook; // [16], codebook4 only
};

struct How {
    Method method;
    const float *weights; // [k], finite and >= 0; weighted only
    const Factor *factor; // gptq only
};

struct Loss { // sums over all elements, and the largest magnitudes of the source and of the error
    double signal = 0, noise = 0;
    float largest = 0, worst = 0;
};

// Writes the stored bytes: n k of them times the scheme's size, packed schemes with n rounded up to 16. ArgumentError
// when a value is not finite or a scale (bf16: a value) overflows.
Loss encode(const Coder &, ThreadPool &, const Rows &, const Format &, const How &, uint8_t *out);

} // namespace clover::quant

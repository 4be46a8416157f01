// AVX2 with four-way byte dot products 256 bits wide. Compiled twice: for AVX-VNNI, and (CLOVER_VNNI_EVEX) for
// AVX-512 VNNI, where it is the choice for processors that slow down at 512 bits, and can be tested on all others.
#include <immintrin.h>

#include "kernels/mixers.h"
#include "kernels/reference.h"
#include "kernels/tables.h"

namespace clover {

namespace {

#include "kernels/layout.h"
#include "kernels/vec_avx2.h"

#include "kernels/simd_math.h"

#include "kernels/simd_decode.h"
#include "kernels/simd_dots.h"
#include "kernels/simd_vnni.h"

#include "kernels/simd_packed.h"
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"

} // namespace

#ifdef CLOVER_VNNI_EVEX
const Kernels kVnni256Kernels = {
    "vnni256",
#else
const Kernels kAvxVnniKernels = {
    "avxvnni",
#endif
    {0, 0, 128, 8, 128, 4},
    quantize,
    matmul,
    reference::dequantize_row,
    rmsnorm,
    l2norm,
    silu_mul,
    conv,
    avx2::delta_commit,
    avx2::delta_closed,
    avx2::delta_preview,
    gated_norm,
    avx2::attention,
    sigmoid_mul,
    head_stats,
};

} // namespace clover

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
#include "kernels/simd_table.h"

constexpr Mixers kMixers = {avx2::delta_commit, avx2::delta_closed, avx2::delta_preview, avx2::attention};

} // namespace

#ifdef CLOVER_VNNI_EVEX
const Kernels kVnni256Kernels = vector_table("vnni256", kMixers);
#else
const Kernels kAvxVnniKernels = vector_table("avxvnni", kMixers);
#endif

} // namespace clover

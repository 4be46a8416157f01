// AVX-512 with VNNI: products with packed weights, and the table.
#include <immintrin.h>

#include "kernels/mixers.h"
#include "kernels/reference.h"
#include "kernels/tables.h"

namespace clover {

namespace {

#include "kernels/layout.h"
#include "kernels/vec_avx512.h"

#include "kernels/simd_math.h"

#include "kernels/simd_decode.h"
#include "kernels/simd_dots.h"
#include "kernels/simd_vnni.h"

#include "kernels/simd_packed.h"
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"
#include "kernels/simd_table.h"

constexpr Mixers kMixers = {avx512vnni::delta_commit, avx512vnni::delta_closed, avx512vnni::delta_preview,
                            avx512vnni::attention};

} // namespace

const Kernels kAvx512VnniKernels = vector_table("avx512vnni", kMixers);

} // namespace clover

// AVX-512: the operations that mix rows.
#include <immintrin.h>

#include "kernels/mixers.h"

namespace clover::avx512vnni {

namespace {

#include "kernels/vec_avx512.h"

#include "kernels/simd_math.h"

#include "kernels/simd_gemm.h"

#include "kernels/simd_mixers.h"

#include "kernels/simd_attention.h"

} // namespace

void delta_commit(const DeltaHead &head) { commit(head); }
void delta_closed(const DeltaHead &head) { closed(head); }
void delta_preview(const PreviewHead &head) { preview(head); }
void attention(const AttentionHeads &heads) { attend(heads); }

} // namespace clover::avx512vnni

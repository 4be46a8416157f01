// The reference rows: complete, plain and slow. Vector tables may point to one where they gain
// nothing; tests hold every other row against these.
#pragma once

#include "kernels/kernels.h"

namespace clover::reference {

float from_f16(const uint8_t *bytes); // little endian
void quantize(const float *x, int64_t ldx, int rows, int k, int block, int8_t *q, int ldq, float *scale,
              int32_t *sum32);
void matmul(const MatmulCall &);
void dequantize_row(const Matrix &, int row, float *out);
void rmsnorm(const float *x, int64_t ldx, const float *w, float offset, float eps, int rows, int n, float *out,
             int64_t ldo);
void l2norm(const float *x, int64_t ldx, int rows, int heads, int d, float scale, float *out, int64_t ldo);
void silu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo);
void gelu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo);
void conv(const float *ring, const float *block, int64_t ldb, const float *w, const float *right, int rows,
          int channels, int taps, int c0, int c1, float *out, int64_t ldo);
void delta_commit(const DeltaHead &);
void delta_closed(const DeltaHead &);
void delta_preview(const PreviewHead &);
void gated_norm(float *o, int64_t ldo, const float *z, int64_t ldz, const float *w, float eps, int rows, int heads,
                int dv);
void attention(const AttentionHeads &);
void sigmoid_mul(float *x, int64_t ldx, const float *gate, int64_t ldg, int rows, int n);
void head_stats(const MatmulCall &, const HeadRule &, float *scratch, HeadStats *out);
void head_logits(const MatmulCall &, const HeadRule &, float *out);

} // namespace clover::reference

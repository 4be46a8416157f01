// NEON with byte matrix products: products with packed weights, and the table.
#include <arm_neon.h>

#include "kernels/mixers.h"
#include "kernels/reference.h"
#include "kernels/tables.h"

namespace clover {

namespace {

#include "kernels/layout.h"
#include "kernels/vec_neon.h"

#include "kernels/simd_math.h"

#include "kernels/simd_decode.h"

// smmla multiplies two rows of eight weights by two rows of eight activations. Decoding puts the two halves of
// eight columns side by side: half 0 is rows 0 and 1 of the four, half 1 is rows 2 and 3.
struct Dot {
    static constexpr int tiles_streamed = 2, tiles_in_place = 1, tiles_staged = 1;

    static constexpr int byte_offset = 0; // bytes are multiplied as they are

    using Table = DecodeTable;
    static Table table(const Matrix &w) { return {w.codebook ? Vec::repeat16(w.codebook) : vdupq_n_s8(0)}; }

    template <Scheme scheme, int half>
    static Vec::Bytes decode(const uint8_t *codes, int64_t k, int part, const Table &table) {
        const Vec::I left = vreinterpretq_s32_s8(decode_codes<scheme, 0>(codes, k, part, table));
        const Vec::I right = vreinterpretq_s32_s8(decode_codes<scheme, 1>(codes, k, part, table));
        return vreinterpretq_s8_s32(half ? vzip2q_s32(left, right) : vzip1q_s32(left, right));
    }

    template <int group, class Group, int V, int R>
    static void multiply(const Group &codes, int64_t at, const int8_t *const (&q)[R], const int32_t (&start)[R],
                         Vec::I (&dot)[V][R]) {
        start_all(start, dot);
        if constexpr (R == 1)
            multiply_row<group>(codes, at, q[0], dot);
        else
            multiply_rows<group>(codes, at, q, dot);
    }

  private:
    static Vec::I join_low(Vec::I a, Vec::I b) {
        return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
    }
    static Vec::I join_high(Vec::I a, Vec::I b) {
        return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
    }

    // Pairs of rows; the last of an odd number is its own partner.
    template <int group, class Group, int V, int R>
    static void multiply_rows(const Group &codes, int64_t at, const int8_t *const (&q)[R], Vec::I (&dot)[V][R]) {
        constexpr int P = (R + 1) / 2;
        Vec::I sum[V][P][2]; // [half]: row r by two weight rows, row r + 1 by the same
        for (int v = 0; v < V; ++v)
            for (int p = 0; p < P; ++p) {
                const int r = 2 * p, partner = smaller(r + 1, R - 1);
                sum[v][p][0] = join_low(dot[v][r], dot[v][partner]);
                sum[v][p][1] = join_high(dot[v][r], dot[v][partner]);
            }
        for (int64_t c = 0; c < group; c += 32)
#pragma GCC unroll 4
            for (int i = 0; i < 32; i += 8) {
                const int64_t k = c + i;
                Vec::Bytes x[P];
                for (int p = 0; p < P; ++p)
                    x[p] = vcombine_s8(vld1_s8(q[2 * p] + at + k), vld1_s8(q[smaller(2 * p + 1, R - 1)] + at + k));
                for (int v = 0; v < V; ++v) {
                    const Vec::Bytes w[2] = {codes.template load<0>(v, k), codes.template load<1>(v, k)};
                    for (int p = 0; p < P; ++p)
                        for (int half = 0; half < 2; ++half)
                            sum[v][p][half] = vmmlaq_s32(sum[v][p][half], x[p], w[half]);
                }
            }
        for (int v = 0; v < V; ++v)
            for (int r = 0; r < R; ++r)
                dot[v][r] = r % 2 ? join_high(sum[v][r / 2][0], sum[v][r / 2][1])
                                  : join_low(sum[v][r / 2][0], sum[v][r / 2][1]);
    }

    // One row: four-way dot products, two sums for each row of weights.
    template <int group, class Group, int V>
    static void multiply_row(const Group &codes, int64_t at, const int8_t *q, Vec::I (&dot)[V][1]) {
        Vec::I sum[V][2];
        for (int v = 0; v < V; ++v)
            sum[v][0] = sum[v][1] = Vec::zero_int();
        for (int64_t c = 0; c < group; c += 32)
#pragma GCC unroll 4
            for (int i = 0; i < 32; i += 8) {
                const int64_t k = c + i;
                const int8x8_t eight = vld1_s8(q + at + k);
                const Vec::Bytes x = vcombine_s8(eight, eight);
                for (int v = 0; v < V; ++v) {
                    sum[v][0] = vdotq_s32(sum[v][0], codes.template load<0>(v, k), x);
                    sum[v][1] = vdotq_s32(sum[v][1], codes.template load<1>(v, k), x);
                }
            }
        for (int v = 0; v < V; ++v)
            dot[v][0] = vaddq_s32(dot[v][0], vpaddq_s32(sum[v][0], sum[v][1]));
    }
};

#include "kernels/simd_packed.h"
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"
#include "kernels/simd_table.h"

constexpr Mixers kMixers = {neon::delta_commit, neon::delta_closed, neon::delta_preview, neon::attention};

} // namespace

const Kernels kNeonI8mmKernels = vector_table("neon_i8mm", kMixers);

} // namespace clover

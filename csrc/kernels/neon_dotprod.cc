// NEON with four-way byte dot products: products with packed weights, and the table.
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

// sdot adds four products of signed bytes to each of four sums, the activations being one quarter of a register:
// a load of 16 codes serves 16 rows of weights.
struct Dot {
    static constexpr int tiles_streamed = 2, tiles_in_place = 1, tiles_staged = 1;

    static constexpr int byte_offset = 0; // bytes are multiplied as they are

    using Table = DecodeTable;
    static Table table(const Matrix &w) { return {w.codebook ? Vec::repeat16(w.codebook) : vdupq_n_s8(0)}; }

    template <Scheme scheme, int half>
    static Vec::Bytes decode(const uint8_t *codes, int64_t k, int part, const Table &table) {
        return decode_codes<scheme, half>(codes, k, part, table);
    }

    template <int group, class Group, int V, int R>
    static void multiply(const Group &codes, int64_t at, const int8_t *const (&q)[R], const int32_t (&start)[R],
                         Vec::I (&dot)[V][R]) {
        start_all(start, dot);
        for (int64_t c = 0; c < group; c += 32)
#pragma GCC unroll 2
            for (int i = 0; i < 32; i += 16) {
                const int64_t k = c + i;
                Vec::Bytes x[R];
                for (int r = 0; r < R; ++r)
                    x[r] = vld1q_s8(q[r] + at + k);
                add<0>(codes, k, x, dot);
                add<1>(codes, k, x, dot);
                add<2>(codes, k, x, dot);
                add<3>(codes, k, x, dot);
            }
    }

  private:
    template <int quarter, class Group, int V, int R>
    static void add(const Group &codes, int64_t k, const Vec::Bytes (&x)[R], Vec::I (&dot)[V][R]) {
        for (int v = 0; v < V; ++v) {
            const Vec::Bytes w = codes.template load<quarter % 2>(v, k + quarter / 2 * 8);
            for (int r = 0; r < R; ++r)
                dot[v][r] = vdotq_laneq_s32(dot[v][r], w, x[r], quarter);
        }
    }
};

#include "kernels/simd_packed.h"
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"
#include "kernels/simd_table.h"

constexpr Mixers kMixers = {neon::delta_commit, neon::delta_closed, neon::delta_preview, neon::attention};

} // namespace

const Kernels kNeonDotprodKernels = vector_table("neon_dotprod", kMixers);

} // namespace clover

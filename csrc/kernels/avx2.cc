// AVX2: products with packed weights, and the table.
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

// vpmaddubsw multiplies unsigned by signed bytes and adds pairs in 16 bits with saturation.
struct Dot {
    static constexpr int tiles_streamed = 2, tiles_in_place = 1, tiles_staged = 1;

    static constexpr int byte_offset = 0; // bytes are multiplied as they are

    using Table = DecodeTable;
    static Table table(const Matrix &w) { return {w.codebook ? Vec::repeat16(w.codebook) : Vec::zero_int()}; }

    template <Scheme scheme, int half>
    static Vec::Bytes decode(const uint8_t *codes, int64_t k, int part, const Table &table) {
        return decode_codes<scheme, half>(codes, k, part, table);
    }

    template <int group, class Group, int V, int R>
    static void multiply(const Group &codes, int64_t at, const int8_t *const (&q)[R], const int32_t (&start)[R],
                         Vec::I (&dot)[V][R]) {
        if constexpr (!Group::small)
            start_all(start, dot);
        for (int64_t k = 0; k < group; k += 32)
            if constexpr (Group::small)
                add_small(codes, k, at, q, start, dot);
            else
                add_bytes(codes, k, at, q, dot);
    }

  private:
    // A pair is at most 2 * 15 * 127, and eight of them (32 columns) still fit in 16 bits; then they are widened.
    // Only then are the first 32 columns' start values read: until there, registers are short.
    template <class Group, int V, int R>
    static void add_small(const Group &codes, int64_t first, int64_t at, const int8_t *const (&q)[R],
                          const int32_t (&start)[R], Vec::I (&dot)[V][R]) {
        Vec::I narrow[V][R];
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v)
                narrow[v][r] = Vec::zero_int();
        const auto add = [&](const Vec::Bytes(&w)[V], int64_t k) {
            for (int r = 0; r < R; ++r) {
                const Vec::Bytes x = Vec::four_codes(q[r] + at + k);
                for (int v = 0; v < V; ++v)
                    narrow[v][r] = _mm256_add_epi16(narrow[v][r], _mm256_maddubs_epi16(w[v], x));
            }
        };
#pragma GCC unroll 4
        for (int i = 0; i < 32; i += 8) {
            const int64_t k = first + i;
            Vec::Bytes w[V];
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<0>(v, k);
            add(w, k);
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<1>(v, k);
            add(w, k + 4);
        }
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) {
                const Vec::I sum = _mm256_madd_epi16(narrow[v][r], _mm256_set1_epi16(1));
                dot[v][r] = _mm256_add_epi32(sum, first ? dot[v][r] : Vec::set_int(start[r]));
            }
    }

    // |w| times the activation with w's sign. A pair is at most 2 * 128 * 127: one fits and is widened at once.
    template <class Group, int V, int R>
    static void add_bytes(const Group &codes, int64_t first, int64_t at, const int8_t *const (&q)[R],
                          Vec::I (&dot)[V][R]) {
        const auto add = [&](const Vec::Bytes(&w)[V], int64_t k) {
            for (int v = 0; v < V; ++v) {
                const Vec::Bytes magnitude = _mm256_abs_epi8(w[v]);
                for (int r = 0; r < R; ++r) {
                    const Vec::Bytes x = _mm256_sign_epi8(Vec::four_codes(q[r] + at + k), w[v]);
                    const Vec::I pairs = _mm256_maddubs_epi16(magnitude, x);
                    dot[v][r] = _mm256_add_epi32(dot[v][r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
                }
            }
        };
        for (int i = 0; i < 32; i += 8) {
            const int64_t k = first + i;
            Vec::Bytes w[V];
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<0>(v, k);
            add(w, k);
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<1>(v, k);
            add(w, k + 4);
        }
    }
};

#include "kernels/simd_packed.h"
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"
#include "kernels/simd_table.h"

constexpr Mixers kMixers = {avx2::delta_commit, avx2::delta_closed, avx2::delta_preview, avx2::attention};

} // namespace

const Kernels kAvx2Kernels = vector_table("avx2", kMixers);

} // namespace clover

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
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"

// Four codes of one activation row, for every row of the tile.
inline __m256i four_codes(const int8_t *q) {
    int32_t bits;
    __builtin_memcpy(&bits, q, sizeof bits);
    return _mm256_set1_epi32(bits);
}

inline __m256i load_codes(const uint8_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }

// vpmaddubsw adds two products in 16 bits with saturation. Nibbles: a pair is at most 2 * 15 * 127,
// and eight of them (32 columns) still fit; then they are widened.
template <int R>
inline void add_nibbles(const uint8_t *codes, const int8_t *const (&q)[R], int offset, int group, __m256i (&dot)[R]) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (int start = 0; start < group; start += 32) {
        __m256i narrow[R];
        for (__m256i &sum : narrow)
            sum = _mm256_setzero_si256();
        for (int k = start; k < start + 32; k += 8, codes += 64) {
            const __m256i both = load_codes(codes);
            const __m256i lo = _mm256_and_si256(both, low), hi = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            for (int r = 0; r < R; ++r) {
                const int8_t *at = q[r] + offset + k;
                narrow[r] = _mm256_add_epi16(narrow[r], _mm256_maddubs_epi16(lo, four_codes(at)));
                narrow[r] = _mm256_add_epi16(narrow[r], _mm256_maddubs_epi16(hi, four_codes(at + 4)));
            }
        }
        for (int r = 0; r < R; ++r)
            dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(narrow[r], ones));
    }
}

// Bytes: |w| times the activation with w's sign. A pair is at most 2 * 127 * 127, or 2 * 128 * 127 for
// a code that no exporter writes: below 32767, so one pair fits and is widened at once.
template <int R>
inline void add_bytes(const uint8_t *codes, const int8_t *const (&q)[R], int offset, int group, __m256i (&dot)[R]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int k = 0; k < group; k += 4, codes += 64) {
        const __m256i w = load_codes(codes), magnitude = _mm256_abs_epi8(w);
        for (int r = 0; r < R; ++r) {
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(four_codes(q[r] + offset + k), w));
            dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(pairs, ones));
        }
    }
}

// Half a tile: 8 rows of weights, which lie in the same half of every chunk.
template <int R, Scheme scheme>
inline void packed_rows(const MatmulCall &call, const Output &out, int column, int lanes, int row0) {
    const int tile = column / kTileRows, half = column / 8 % 2;
    const int group = call.w.group, groups = call.w.k / group;
    const int8_t *q[R];
    const float *scale[R];
    const int32_t *sum[R];
    __m256 acc[R];
    for (int r = 0; r < R; ++r) {
        const int64_t source = source_row(call, row0 + r);
        q[r] = call.a.q + source * call.w.k;
        scale[r] = call.a.scale + source * groups;
        sum[r] = call.a.sum + source * groups;
        acc[r] = _mm256_setzero_ps();
    }
    const uint8_t *bytes = tile_group(call.w, tile, 0);
    for (int g = 0; g < groups; ++g, bytes += group_bytes(scheme, group)) {
        const auto *halves = reinterpret_cast<const __m128i *>(bytes);
        const __m256 weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(halves + half));
        __m256i dot[R];
        for (int r = 0; r < R; ++r)
            dot[r] = _mm256_set1_epi32(scheme == Scheme::int4 ? -8 * sum[r][g] : 0);
        if constexpr (scheme == Scheme::int4)
            add_nibbles<R>(bytes + 32 + 32 * half, q, g * group, group, dot);
        else
            add_bytes<R>(bytes + 32 + 32 * half, q, g * group, group, dot);
        for (int r = 0; r < R; ++r)
            acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r]), weight_scale * _mm256_set1_ps(scale[r][g]), acc[r]);
    }
    for (int r = 0; r < R; ++r)
        Vec::store(out.at(row0 + r, column), acc[r], lanes);
}

void packed_tiles(const MatmulCall &call, const Output &out, int tile, int count, int last) {
    for (int half = 0; half < 2 * count; ++half) { // a half tile's codes stay in the first cache for all rows
        const int column = tile * kTileRows + 8 * half, lanes = smaller(8, last - column);
        if (lanes <= 0)
            return;
        for_row_blocks<4>(call.rows, [&](int row, auto rows) {
            constexpr int R = decltype(rows)::value;
            if (call.w.scheme == Scheme::int4)
                packed_rows<R, Scheme::int4>(call, out, column, lanes, row);
            else
                packed_rows<R, Scheme::int8>(call, out, column, lanes, row);
        });
    }
}

} // namespace

const Kernels kAvx2Kernels = {
    "avx2",
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

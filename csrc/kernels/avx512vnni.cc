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
#include "kernels/simd_project.h"
#include "kernels/simd_rows.h"

// Four codes of one activation row, for every row of the tile.
inline __m512i four_codes(const int8_t *q) {
    int32_t bits;
    __builtin_memcpy(&bits, q, sizeof bits);
    return _mm512_set1_epi32(bits);
}

// The accumulators of T tiles by R rows. A broadcast of activations serves all T tiles.
template <int T, int R> using Block = __m512i[T][R];

template <int T, int R>
inline void multiply(const __m512i (&w)[T], const int8_t *const (&q)[R], int at, Block<T, R> &dot) {
    for (int r = 0; r < R; ++r) {
        const __m512i x = four_codes(q[r] + at);
        for (int t = 0; t < T; ++t)
            dot[t][r] = _mm512_dpbusd_epi32(dot[t][r], w[t], x);
    }
}

// vpdpbusd multiplies unsigned by signed bytes, so weights enter with an offset (8 for nibbles,
// 128 for bytes) that the starting value of the sum takes off again: all exact in int32. Columns
// alternate between two blocks of sums where one block alone would wait for its own latency.
template <int T, int R, Scheme scheme>
inline void multiply_group(const uint8_t *const (&codes)[T], const int8_t *const (&q)[R], int first, int group,
                           Block<T, R> &dot) {
    constexpr bool two_chains = T * R < 8;
    Block<T, R> second;
    if constexpr (two_chains)
        for (auto &tile : second)
            for (__m512i &sum : tile)
                sum = _mm512_setzero_si512();
    for (int k = 0; k < group; k += 8) {
        __m512i even[T], odd[T]; // columns k .. k + 3 and k + 4 .. k + 7
        for (int t = 0; t < T; ++t)
            if constexpr (scheme == Scheme::int4) {
                const __m512i low = _mm512_set1_epi8(15), both = _mm512_loadu_si512(codes[t] + 8 * k);
                even[t] = _mm512_and_si512(both, low);
                odd[t] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
            } else {
                const __m512i flip = _mm512_set1_epi8(-128);
                even[t] = _mm512_xor_si512(_mm512_loadu_si512(codes[t] + 16 * k), flip);
                odd[t] = _mm512_xor_si512(_mm512_loadu_si512(codes[t] + 16 * k + 64), flip);
            }
        multiply<T, R>(even, q, first + k, dot);
        multiply<T, R>(odd, q, first + k + 4, two_chains ? second : dot);
    }
    if constexpr (two_chains)
        for (int t = 0; t < T; ++t)
            for (int r = 0; r < R; ++r)
                dot[t][r] = _mm512_add_epi32(dot[t][r], second[t][r]);
}

template <int T, int R, Scheme scheme>
inline void packed_rows(const MatmulCall &call, const Output &out, int tile, int last, int row0) {
    constexpr int zero_point = scheme == Scheme::int4 ? 8 : 128;
    const int group = call.w.group, groups = call.w.k / group;
    const int8_t *q[R];
    const float *scale[R];
    const int32_t *sum[R];
    __m512 acc[T][R];
    for (int r = 0; r < R; ++r) {
        const int64_t source = source_row(call, row0 + r);
        q[r] = call.a.q + source * call.w.k;
        scale[r] = call.a.scale + source * groups;
        sum[r] = call.a.sum + source * groups;
        for (int t = 0; t < T; ++t)
            acc[t][r] = _mm512_setzero_ps();
    }
    const uint8_t *codes[T];
    for (int t = 0; t < T; ++t)
        codes[t] = tile_group(call.w, tile + t, 0) + 32;
    for (int g = 0; g < groups; ++g) {
        __m512 weight_scale[T];
        for (int t = 0; t < T; ++t)
            weight_scale[t] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(codes[t] - 32)));
        Block<T, R> dot;
        for (int r = 0; r < R; ++r)
            for (int t = 0; t < T; ++t)
                dot[t][r] = _mm512_set1_epi32(-zero_point * sum[r][g]);
        multiply_group<T, R, scheme>(codes, q, g * group, group, dot);
        for (int r = 0; r < R; ++r)
            for (int t = 0; t < T; ++t) {
                const __m512 factor = weight_scale[t] * _mm512_set1_ps(scale[r][g]);
                acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][r]), factor, acc[t][r]);
            }
        for (int t = 0; t < T; ++t)
            codes[t] += group_bytes(scheme, group);
    }
    for (int t = 0; t < T; ++t)
        for (int r = 0; r < R; ++r) {
            const int column = (tile + t) * kTileRows;
            Vec::store(out.at(row0 + r, column), acc[t][r], smaller(kTileRows, last - column));
        }
}

// Two tiles by up to six rows fill the registers.
void packed_tiles(const MatmulCall &call, const Output &out, int tile, int count, int last) {
    for_row_blocks<6>(call.rows, [&](int row, auto rows) {
        constexpr int R = decltype(rows)::value;
        if (call.w.scheme == Scheme::int4)
            count == 2 ? packed_rows<2, R, Scheme::int4>(call, out, tile, last, row)
                       : packed_rows<1, R, Scheme::int4>(call, out, tile, last, row);
        else
            count == 2 ? packed_rows<2, R, Scheme::int8>(call, out, tile, last, row)
                       : packed_rows<1, R, Scheme::int8>(call, out, tile, last, row);
    });
}

} // namespace

const Kernels kAvx512VnniKernels = {
    "avx512vnni",
    quantize,
    matmul,
    reference::dequantize_row,
    rmsnorm,
    l2norm,
    silu_mul,
    conv,
    avx512vnni::delta_commit,
    avx512vnni::delta_closed,
    avx512vnni::delta_preview,
    gated_norm,
    avx512vnni::attention,
    sigmoid_mul,
    head_stats,
};

} // namespace clover

#include <immintrin.h>

#include "kernels/ceilings.h"

namespace clover {
namespace {

constexpr int kChains = 6;  // sums of 16 bits
constexpr int kSteps = 8;   // products of a nibble and a code that 16 bits hold the sum of
constexpr int kStreams = 8; // read at a time: each page has a prefetcher of its own
constexpr int kFloats = 12; // chains of f32

// Without a four-way dot product: pairs of products in 16 bits, widened once in eight.
int64_t dot(int64_t rounds) {
    __m256i total[kChains], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(1);
    const __m256i ones = _mm256_set1_epi16(1);
    for (__m256i &t : total)
        t = _mm256_setzero_si256();
    for (int64_t round = 0; round < rounds; round++) {
        __m256i narrow[kChains];
        for (__m256i &n : narrow) {
            __m256i next = _mm256_maddubs_epi16(w, x);
            __asm__ volatile("" : "+x"(w), "+x"(x), "+x"(next));
            n = next;
        }
        for (int step = 1; step < kSteps; step++) {
            for (__m256i &n : narrow) {
                __m256i next = _mm256_add_epi16(n, _mm256_maddubs_epi16(w, x));
                __asm__ volatile("" : "+x"(w), "+x"(x), "+x"(next)); // or the compiler multiplies once
                n = next;
            }
        }
        for (int i = 0; i < kChains; i++)
            total[i] = _mm256_add_epi32(total[i], _mm256_madd_epi16(narrow[i], ones));
    }
    volatile int sink;
    for (const __m256i &t : total)
        sink = _mm256_extract_epi32(t, 0);
    (void)sink;
    return rounds * kChains * kSteps * 32 * 2;
}

int64_t fma(int64_t rounds) {
    __m256 chain[kFloats], w = _mm256_set1_ps(0.5f), x = _mm256_set1_ps(1.0f);
    for (__m256 &c : chain)
        c = _mm256_setzero_ps();
    for (int64_t round = 0; round < rounds; round++) {
        for (__m256 &c : chain) {
            __m256 next = _mm256_fmadd_ps(w, c, x); // converges: no infinities, no denormals
            __asm__ volatile("" : "+x"(w), "+x"(x), "+x"(next));
            c = next;
        }
    }
    volatile float sink;
    for (const __m256 &c : chain)
        sink = _mm256_cvtss_f32(c);
    (void)sink;
    return rounds * kFloats * 8 * 2;
}

uint64_t read(const void *data, int64_t bytes) {
    const char *p = static_cast<const char *>(data);
    const int64_t length = bytes / kStreams;
    __m256i seen[kStreams];
    for (__m256i &s : seen)
        s = _mm256_setzero_si256();
    for (int64_t at = 0; at < length; at += 128)
        for (int i = 0; i < kStreams; i++)
            for (int j = 0; j < 128; j += 32) {
                const __m256i *from = reinterpret_cast<const __m256i *>(p + i * length + at + j);
                seen[i] = _mm256_xor_si256(seen[i], _mm256_loadu_si256(from));
            }
    uint64_t parts[4] = {}, total = 0;
    for (const __m256i &s : seen) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(parts), s);
        for (uint64_t part : parts)
            total ^= part;
    }
    return total;
}

} // namespace

const Ceilings kAvx2Ceilings = {"avx2", dot, fma, read};

} // namespace clover

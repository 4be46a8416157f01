// Compiled twice, as avxvnni.cc is: for AVX-VNNI, and (CLOVER_VNNI_EVEX) for AVX-512 VNNI at 256 bits.
#include <immintrin.h>

#include "kernels/ceilings.h"

namespace clover {
namespace {

constexpr int kChains = 12; // two units times a latency of four or five cycles, and room

int64_t dot(int64_t rounds) {
    __m256i chain[kChains], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(1);
    for (__m256i &c : chain)
        c = _mm256_setzero_si256();
    for (int64_t round = 0; round < rounds; round++) {
        for (__m256i &c : chain) {
#ifdef CLOVER_VNNI_EVEX
            __m256i next = _mm256_dpbusd_epi32(c, w, x);
#else
            __m256i next = _mm256_dpbusd_avx_epi32(c, w, x);
#endif
            __asm__ volatile("" : "+x"(w), "+x"(x), "+x"(next)); // or the compiler multiplies once
            c = next;
        }
    }
    volatile int sink;
    for (const __m256i &c : chain)
        sink = _mm256_extract_epi32(c, 0);
    (void)sink;
    return rounds * kChains * 32 * 2;
}

} // namespace

#ifdef CLOVER_VNNI_EVEX
const Ceilings kVnni256Ceilings = {"vnni256", dot, nullptr, nullptr};
#else
const Ceilings kAvxVnniCeilings = {"avxvnni", dot, nullptr, nullptr};
#endif

} // namespace clover

#include <immintrin.h>

#include "kernels/ceilings.h"

namespace clover {
namespace {

constexpr int kChains = 12; // two units times a latency of four or five cycles, and room
constexpr int kStreams = 8; // read at a time: each page has a prefetcher of its own

int64_t dot(int64_t rounds) {
    __m512i chain[kChains], w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(1);
    for (__m512i &c : chain)
        c = _mm512_setzero_si512();
    for (int64_t round = 0; round < rounds; round++) {
        for (__m512i &c : chain) {
            __m512i next = _mm512_dpbusd_epi32(c, w, x);
            __asm__ volatile("" : "+v"(w), "+v"(x), "+v"(next)); // or the compiler multiplies once
            c = next;
        }
    }
    volatile int sink;
    for (const __m512i &c : chain)
        sink = _mm512_cvtsi512_si32(c);
    (void)sink;
    return rounds * kChains * 64 * 2;
}

int64_t fma(int64_t rounds) {
    __m512 chain[kChains], w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(1.0f);
    for (__m512 &c : chain)
        c = _mm512_setzero_ps();
    for (int64_t round = 0; round < rounds; round++) {
        for (__m512 &c : chain) {
            __m512 next = _mm512_fmadd_ps(w, c, x); // converges: no infinities, no denormals
            __asm__ volatile("" : "+v"(w), "+v"(x), "+v"(next));
            c = next;
        }
    }
    volatile float sink;
    for (const __m512 &c : chain)
        sink = _mm512_cvtss_f32(c);
    (void)sink;
    return rounds * kChains * 16 * 2;
}

uint64_t read(const void *data, int64_t bytes) {
    const char *p = static_cast<const char *>(data);
    const int64_t length = bytes / kStreams;
    __m512i seen[kStreams];
    for (__m512i &s : seen)
        s = _mm512_setzero_si512();
    for (int64_t at = 0; at < length; at += 128)
        for (int i = 0; i < kStreams; i++) {
            seen[i] = _mm512_xor_si512(seen[i], _mm512_loadu_si512(p + i * length + at));
            seen[i] = _mm512_xor_si512(seen[i], _mm512_loadu_si512(p + i * length + at + 64));
        }
    uint64_t parts[8] = {}, total = 0;
    for (const __m512i &s : seen) {
        _mm512_storeu_si512(parts, s);
        for (uint64_t part : parts)
            total ^= part;
    }
    return total;
}

} // namespace

const Ceilings kAvx512VnniCeilings = {"avx512vnni", dot, fma, read};

} // namespace clover

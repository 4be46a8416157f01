// Compiled twice, with and without the matrix products of i8mm.
#include <arm_neon.h>

#include "kernels/ceilings.h"

namespace clover {
namespace {

constexpr int kChains = 16; // four units times a latency of four cycles
constexpr int kStreams = 8; // read at a time: each page has a prefetcher of its own

int64_t dot(int64_t rounds) {
    int32x4_t chain[kChains];
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(1);
    for (int32x4_t &c : chain)
        c = vdupq_n_s32(0);
    for (int64_t round = 0; round < rounds; round++) {
        for (int32x4_t &c : chain) {
#ifdef __ARM_FEATURE_MATMUL_INT8
            int32x4_t next = vmmlaq_s32(c, w, x);
#else
            int32x4_t next = vdotq_s32(c, w, x);
#endif
            __asm__ volatile("" : "+w"(w), "+w"(x), "+w"(next)); // or the compiler multiplies once
            c = next;
        }
    }
    volatile int sink;
    for (const int32x4_t &c : chain)
        sink = vgetq_lane_s32(c, 0);
    (void)sink;
#ifdef __ARM_FEATURE_MATMUL_INT8
    return rounds * kChains * 32 * 2;
#else
    return rounds * kChains * 16 * 2;
#endif
}

int64_t fma(int64_t rounds) {
    float32x4_t chain[kChains], w = vdupq_n_f32(0.5f), x = vdupq_n_f32(0.25f);
    for (float32x4_t &c : chain)
        c = vdupq_n_f32(0);
    for (int64_t round = 0; round < rounds; round++) {
        for (float32x4_t &c : chain) {
            float32x4_t next = vfmaq_f32(c, w, x); // grows by an eighth until that is below its last bit
            __asm__ volatile("" : "+w"(w), "+w"(x), "+w"(next));
            c = next;
        }
    }
    volatile float sink;
    for (const float32x4_t &c : chain)
        sink = vgetq_lane_f32(c, 0);
    (void)sink;
    return rounds * kChains * 4 * 2;
}

uint64_t read(const void *data, int64_t bytes) {
    const uint8_t *p = static_cast<const uint8_t *>(data);
    const int64_t length = bytes / kStreams;
    uint8x16_t seen[kStreams];
    for (uint8x16_t &s : seen)
        s = vdupq_n_u8(0);
    for (int64_t at = 0; at < length; at += 128)
        for (int i = 0; i < kStreams; i++)
            for (int j = 0; j < 128; j += 16)
                seen[i] = veorq_u8(seen[i], vld1q_u8(p + i * length + at + j));
    uint64_t total = 0;
    for (const uint8x16_t &s : seen) {
        const uint64x2_t halves = vreinterpretq_u64_u8(s);
        total ^= vgetq_lane_u64(halves, 0) ^ vgetq_lane_u64(halves, 1);
    }
    return total;
}

} // namespace

#ifdef __ARM_FEATURE_MATMUL_INT8
const Ceilings kNeonI8mmCeilings = {"neon_i8mm", dot, fma, read};
#else
const Ceilings kNeonDotprodCeilings = {"neon_dotprod", dot, fma, read};
#endif

} // namespace clover

// Vec: the vector type that the shared simd_*.h files are written in; 4 floats. Included inside the
// anonymous namespace of an AArch64 file. A `lanes` argument below `width` touches that many.
struct Vec {
    using F = float32x4_t;
    using Four = float32x4_t; // four floats, read by index
    using I = int32x4_t;
    using Bytes = int8x16_t;
    static constexpr int width = 4;
    static constexpr int registers = 32;
    static constexpr int dot_rows = 4;     // activation rows that dots() keeps in registers
    static constexpr int gemm_vectors = 4; // and columns of vectors that gemm() does

    static F set(float x) { return vdupq_n_f32(x); }
    static F zero() { return vdupq_n_f32(0.0f); }
    static F load(const float *p) { return vld1q_f32(p); }
    static F load(const float *p, int lanes) { return lanes == width ? load(p) : load_strided(p, 1, lanes); }
    static F load(const uint16_t *p) { return widen(vld1_u16(p)); } // bf16
    static F load(const uint16_t *p, int lanes) {
        if (lanes == width)
            return load(p);
        uint16_t copy[width] = {};
        for (int i = 0; i < lanes; ++i)
            copy[i] = p[i];
        return widen(vld1_u16(copy));
    }
    static F load(const int8_t *p) {
        int32_t four;
        __builtin_memcpy(&four, p, sizeof four);
        return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
    }
    static F load_strided(const float *p, int stride, int lanes) {
        float copy[width] = {};
        for (int i = 0; i < lanes; ++i)
            copy[i] = p[int64_t(i) * stride];
        return vld1q_f32(copy);
    }
    static void store(float *p, F x) { vst1q_f32(p, x); }
    static void store(float *p, F x, int lanes) {
        if (lanes == width)
            return store(p, x);
        float copy[width];
        vst1q_f32(copy, x);
        for (int i = 0; i < lanes; ++i)
            p[i] = copy[i];
    }

    static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }  // a b + c
    static F fnma(F a, F b, F c) { return vfmsq_f32(c, a, b); } // c - a b
    // Of a NaN and a number these return the second argument.
    static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
    static F round(F x) { return vrndnq_f32(x); }
    static F pow2(F n) { // n integral, -126..127; infinity for 128
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
    }
    static F zero_if_less(F value, F x, F bound) {
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, bound)));
    }

    // Sums of four vectors. Each sum's order is fixed and the same in all four places.
    static Four sum4(F a, F b, F c, F d) { return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)); }
    static float sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
    static float max_of(F x) { return vmaxvq_f32(x); }

    // Integers, for quantisation.
    static I magnitude_bits(F x) { return vandq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0x7fffffff)); }
    static I max_int(I a, I b) { return vmaxq_s32(a, b); }
    static I add_int(I a, I b) { return vaddq_s32(a, b); }
    static I zero_int() { return vdupq_n_s32(0); }
    static int max_of_int(I x) { return vmaxvq_s32(x); }
    static int sum_of_int(I x) { return vaddvq_s32(x); }
    static I to_int(F x) { return vcvtnq_s32_f32(x); } // nearest even
    static float float_of_bits(int bits) { return vget_lane_f32(vreinterpret_f32_s32(vdup_n_s32(bits)), 0); }
    static void store_bytes(int8_t *p, I x) {
        const int16x4_t words = vmovn_s32(x);
        const int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
        __builtin_memcpy(p, &bytes, sizeof bytes);
    }

    // Packed weights.
    static I set_int(int32_t x) { return vdupq_n_s32(x); }
    static F to_float(I x) { return vcvtq_f32_s32(x); }
    static F load_half(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
    static Bytes load_bytes(const uint8_t *p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
    static void store_bytes(uint8_t *p, Bytes x) { vst1q_u8(p, vreinterpretq_u8_s8(x)); }
    static Bytes nibbles(Bytes x) { return vandq_s8(x, vdupq_n_s8(15)); }
    static Bytes high_nibbles(Bytes x) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(x), 4)); }
    static Bytes look_up(Bytes table, Bytes x) { return vqtbl1q_s8(table, vreinterpretq_u8_s8(x)); }
    static Bytes repeat16(const int8_t *p) { return vld1q_s8(p); }
    // Three-bit codes from two bits at `low_bit` and one at `high_bit` of each byte.
    static Bytes join_bits(Bytes low, int low_bit, Bytes high, int high_bit) {
        const Bytes two = shift_left(low, -low_bit), one = shift_left(high, 2 - high_bit);
        return vorrq_s8(vandq_s8(two, vdupq_n_s8(3)), vandq_s8(one, vdupq_n_s8(4)));
    }
    static void prefetch(const uint8_t *p) { __builtin_prefetch(p); }

  private:
    static F widen(uint16x4_t bf16) { return vreinterpretq_f32_u32(vshll_n_u16(bf16, 16)); }
    static Bytes shift_left(Bytes x, int count) { // right where count is negative
        return vreinterpretq_s8_u8(vshlq_u8(vreinterpretq_u8_s8(x), vdupq_n_s8(static_cast<int8_t>(count))));
    }
};

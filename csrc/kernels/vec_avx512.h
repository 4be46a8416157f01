// Vec: the vector type that the shared simd_*.h files are written in; 16 floats. Included inside
// the anonymous namespace of an AVX-512 file. A `lanes` argument below `width` touches that many.
struct Vec {
    using F = __m512;
    using Four = __m128; // four floats, read by index
    using I = __m512i;
    using Bytes = __m512i;
    static constexpr int width = 16;
    static constexpr int registers = 32;
    static constexpr int dot_rows = 4;     // activation rows that dots() keeps in registers
    static constexpr int gemm_vectors = 4; // and columns of vectors that gemm() does

    static __mmask16 mask(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1); }
    static F set(float x) { return _mm512_set1_ps(x); }
    static F zero() { return _mm512_setzero_ps(); }
    static F load(const float *p) { return _mm512_loadu_ps(p); }
    static F load(const float *p, int lanes) {
        return lanes == width ? load(p) : _mm512_maskz_loadu_ps(mask(lanes), p);
    }
    static F load(const uint16_t *p) { // bf16
        return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
    static F load(const uint16_t *p, int lanes) {
        return lanes == width ? load(p) : widen(_mm256_maskz_loadu_epi16(mask(lanes), p));
    }
    static F load(const int8_t *p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
    }
    static F load_strided(const float *p, int stride, int lanes) {
        const I index = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(stride));
        return _mm512_mask_i32gather_ps(zero(), mask(lanes), index, p, 4);
    }
    static void store(float *p, F x) { _mm512_storeu_ps(p, x); }
    static void store(float *p, F x, int lanes) { _mm512_mask_storeu_ps(p, mask(lanes), x); }

    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }   // a b + c
    static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); } // c - a b
    // Of a NaN and a number these return the second argument.
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static F min(F a, F b) { return _mm512_min_ps(a, b); }
    static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static F pow2(F n) { // n integral, -126..127; infinity for 128
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
    }
    static F zero_if_less(F value, F x, F bound) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value);
    }

    // Sums of four vectors. Each sum's order is fixed and the same in all four places.
    static Four sum4(F a, F b, F c, F d) {
        const F ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        const F cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        const F all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
        const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
        return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    }
    static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    static float max_of(F x) { return _mm512_reduce_max_ps(x); }

    // Integers, for quantisation.
    static I magnitude_bits(F x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }
    static I max_int(I a, I b) { return _mm512_max_epi32(a, b); }
    static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
    static I zero_int() { return _mm512_setzero_si512(); }
    static int max_of_int(I x) { return _mm512_reduce_max_epi32(x); }
    static int sum_of_int(I x) { return _mm512_reduce_add_epi32(x); }
    static I to_int(F x) { return _mm512_cvtps_epi32(x); } // nearest even
    static float float_of_bits(int bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))); }
    static void store_bytes(int8_t *p, I x) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm512_cvtepi32_epi8(x));
    }

    // Packed weights.
    static I set_int(int32_t x) { return _mm512_set1_epi32(x); }
    static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
    static F load_half(const uint8_t *p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
    static Bytes load_bytes(const uint8_t *p) { return _mm512_loadu_si512(p); }
    static void store_bytes(uint8_t *p, Bytes x) { _mm512_storeu_si512(p, x); }
    static Bytes four_codes(const int8_t *q) { // of one activation row, for every row of the tile
        int32_t bits;
        __builtin_memcpy(&bits, q, sizeof bits);
        return _mm512_set1_epi32(bits);
    }
    static I dot(I sum, Bytes w, Bytes x) { return _mm512_dpbusd_epi32(sum, w, x); } // w unsigned
    static Bytes nibbles(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
    static Bytes high_nibbles(Bytes x) { return nibbles(_mm512_srli_epi16(x, 4)); }
    static Bytes flip_signs(Bytes x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }
    static Bytes look_up(Bytes table, Bytes x) { return _mm512_shuffle_epi8(table, x); }
    static Bytes repeat16(const int8_t *p) {
        return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    // Three-bit codes from two bits at `low_bit` and one at `high_bit` of each byte.
    static Bytes join_bits(Bytes low, int low_bit, Bytes high, int high_bit) {
        const Bytes two = _mm512_srli_epi16(low, static_cast<unsigned>(low_bit));
        const Bytes one = high_bit < 2 ? _mm512_slli_epi16(high, static_cast<unsigned>(2 - high_bit))
                                       : _mm512_srli_epi16(high, static_cast<unsigned>(high_bit - 2));
        // (three ? two : one) & 7, the first as one operation
        const Bytes mixed = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), two, one, 0xca);
        return _mm512_and_si512(mixed, _mm512_set1_epi8(7));
    }
    static void prefetch(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }

  private:
    static F widen(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }
};

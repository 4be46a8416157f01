// Vec: the vector type that the shared simd_*.h files are written in; 8 floats. Included inside the
// anonymous namespace of an AVX2 file. A `lanes` argument below `width` touches that many.
struct Vec {
    using F = __m256;
    using Four = __m128; // four floats, read by index
    using I = __m256i;
    using Bytes = __m256i;
    static constexpr int width = 8;
    static constexpr int registers = 16;
    static constexpr int dot_rows = 2;     // activation rows that dots() keeps in registers
    static constexpr int gemm_vectors = 2; // and columns of vectors that gemm() does

    static I mask(int lanes) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static F set(float x) { return _mm256_set1_ps(x); }
    static F zero() { return _mm256_setzero_ps(); }
    static F load(const float *p) { return _mm256_loadu_ps(p); }
    static F load(const float *p, int lanes) { return lanes == width ? load(p) : _mm256_maskload_ps(p, mask(lanes)); }
    static F load(const uint16_t *p) { // bf16
        return widen(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static F load(const uint16_t *p, int lanes) {
        if (lanes == width)
            return load(p);
        alignas(16) uint16_t copy[width] = {};
        for (int i = 0; i < lanes; ++i)
            copy[i] = p[i];
        return widen(_mm_load_si128(reinterpret_cast<const __m128i *>(copy)));
    }
    static F load(const int8_t *p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    }
    static F load_strided(const float *p, int stride, int lanes) {
        const I index = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(stride));
        return _mm256_mask_i32gather_ps(zero(), p, index, _mm256_castsi256_ps(mask(lanes)), 4);
    }
    static void store(float *p, F x) { _mm256_storeu_ps(p, x); }
    static void store(float *p, F x, int lanes) {
        if (lanes == width)
            store(p, x);
        else
            _mm256_maskstore_ps(p, mask(lanes), x);
    }

    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }   // a b + c
    static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); } // c - a b
    // Of a NaN and a number these return the second argument.
    static F max(F a, F b) { return _mm256_max_ps(a, b); }
    static F min(F a, F b) { return _mm256_min_ps(a, b); }
    static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static F pow2(F n) { // n integral, -126..127; infinity for 128
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
    }
    static F zero_if_less(F value, F x, F bound) { return _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ), value); }

    // Sums of four vectors. Each sum's order is fixed and the same in all four places.
    static Four sum4(F a, F b, F c, F d) {
        const F ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        const F cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        const F all = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
        return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    }
    static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
    static float max_of(F x) {
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
    }

    // Integers, for quantisation.
    static I magnitude_bits(F x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }
    static I max_int(I a, I b) { return _mm256_max_epi32(a, b); }
    static I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
    static I zero_int() { return _mm256_setzero_si256(); }
    static int max_of_int(I x) {
        __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
        return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
    }
    static int sum_of_int(I x) {
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
    }
    static I to_int(F x) { return _mm256_cvtps_epi32(x); } // nearest even
    static float float_of_bits(int bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))); }
    static void store_bytes(int8_t *p, I x) {
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i *>(p), _mm_packs_epi16(words, words));
    }

    // Packed weights.
    static I set_int(int32_t x) { return _mm256_set1_epi32(x); }
    static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
    static F load_half(const uint8_t *p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static Bytes load_bytes(const uint8_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
    static void store_bytes(uint8_t *p, Bytes x) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), x); }
    static Bytes four_codes(const int8_t *q) { // of one activation row, for every row of the tile
        int32_t bits;
        __builtin_memcpy(&bits, q, sizeof bits);
        return _mm256_set1_epi32(bits);
    }
#if defined(__AVX512VNNI__)
    static I dot(I sum, Bytes w, Bytes x) { return _mm256_dpbusd_epi32(sum, w, x); } // w unsigned
#elif defined(__AVXVNNI__)
    static I dot(I sum, Bytes w, Bytes x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#endif
    static Bytes nibbles(Bytes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
    static Bytes high_nibbles(Bytes x) { return nibbles(_mm256_srli_epi16(x, 4)); }
    static Bytes flip_signs(Bytes x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }
    static Bytes look_up(Bytes table, Bytes x) { return _mm256_shuffle_epi8(table, x); }
    static Bytes repeat16(const int8_t *p) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    // Three-bit codes from two bits at `low_bit` and one at `high_bit` of each byte.
    static Bytes join_bits(Bytes low, int low_bit, Bytes high, int high_bit) {
        const Bytes two = _mm256_srli_epi16(low, low_bit);
        const Bytes one = high_bit < 2 ? _mm256_slli_epi16(high, 2 - high_bit) : _mm256_srli_epi16(high, high_bit - 2);
        return _mm256_or_si256(_mm256_and_si256(two, _mm256_set1_epi8(3)), _mm256_and_si256(one, _mm256_set1_epi8(4)));
    }
    static void prefetch(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }

  private:
    static F widen(__m128i bf16) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16)); }
};

// Row-wise operations, written in Vec. Included inside an anonymous namespace after simd_math.h.

inline float sum_of_squares(const float *x, int n) {
    Vec::F even = Vec::zero(), odd = Vec::zero();
    int i = 0;
    for (; i + 2 * Vec::width <= n; i += 2 * Vec::width) {
        const Vec::F a = Vec::load(x + i), b = Vec::load(x + i + Vec::width);
        even = Vec::fma(a, a, even);
        odd = Vec::fma(b, b, odd);
    }
    for (; i < n; i += Vec::width) {
        const Vec::F a = Vec::load(x + i, smaller(Vec::width, n - i));
        even = Vec::fma(a, a, even);
    }
    return sum_of(even + odd);
}

void rmsnorm(const float *x, int64_t ldx, const float *w, float offset, float eps, int rows, int n, float *out,
             int64_t ldo) {
    for (int r = 0; r < rows; ++r) {
        const float *in = x + r * ldx;
        float *to = out + r * ldo;
        const Vec::F factor = Vec::set(inverse_sqrt(sum_of_squares(in, n) / static_cast<float>(n) + eps));
        for_vectors(n, [&](int i, auto lanes) {
            const Vec::F weight = Vec::load(w + i, lanes) + Vec::set(offset);
            Vec::store(to + i, Vec::load(in + i, lanes) * factor * weight, lanes);
        });
    }
}

void l2norm(const float *x, int64_t ldx, int rows, int heads, int d, float scale, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
            const float *in = x + r * ldx + h * d;
            float *to = out + r * ldo + h * d;
            const Vec::F factor = Vec::set(inverse_sqrt(sum_of_squares(in, d) + 1e-6f) * scale);
            for_vectors(d, [&](int i, auto lanes) { Vec::store(to + i, Vec::load(in + i, lanes) * factor, lanes); });
        }
}

void silu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for_vectors(n, [&](int i, auto lanes) {
            const Vec::F g = Vec::load(gate + r * ldg + i, lanes), u = Vec::load(up + r * ldu + i, lanes);
            Vec::store(out + r * ldo + i, silu(g) * u, lanes);
        });
}

void gelu_mul(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out, int64_t ldo) {
    for (int r = 0; r < rows; ++r)
        for_vectors(n, [&](int i, auto lanes) {
            const Vec::F g = Vec::load(gate + r * ldg + i, lanes), u = Vec::load(up + r * ldu + i, lanes);
            Vec::store(out + r * ldo + i, gelu(g) * u, lanes);
        });
}

void sigmoid_mul(float *x, int64_t ldx, const float *gate, int64_t ldg, int rows, int n) {
    for (int r = 0; r < rows; ++r)
        for_vectors(n, [&](int i, auto lanes) {
            float *at = x + r * ldx + i;
            Vec::store(at, Vec::load(at, lanes) * sigmoid(Vec::load(gate + r * ldg + i, lanes)), lanes);
        });
}

void gated_norm(float *o, int64_t ldo, const float *z, int64_t ldz, const float *w, float eps, int rows, int heads,
                int dv) {
    for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
            float *x = o + r * ldo + h * dv;
            const float *gate = z + r * ldz + h * dv;
            const Vec::F factor = Vec::set(inverse_sqrt(sum_of_squares(x, dv) / static_cast<float>(dv) + eps));
            for_vectors(dv, [&](int i, auto lanes) {
                const Vec::F normed = Vec::load(x + i, lanes) * factor * Vec::load(w + i, lanes);
                Vec::store(x + i, normed * silu(Vec::load(gate + i, lanes)), lanes);
            });
        }
}

// One vector of channels, all rows. A window of rows slides along, so that each is loaded once: rows lie
// far apart and compete for few cache sets.
template <int Taps, typename Lanes>
inline void conv_channels(const float *ring, const float *block, int64_t ldb, const float *w, const float *right,
                          int rows, int channels, int c, float *out, int64_t ldo, Lanes lanes) {
    constexpr int past = Taps - 1, ahead = past;
    Vec::F left_taps[Taps], right_taps[ahead + 1], window[past + 1 + ahead]; // rows t - past .. t + ahead
    for (int j = 0; j < Taps; ++j)
        left_taps[j] = Vec::load_strided(w + int64_t(c) * Taps + j, Taps, lanes);
    for (int d = 0; right && d < ahead; ++d)
        right_taps[d] = Vec::load_strided(right + int64_t(c) * ahead + d, ahead, lanes);
    for (int i = 0; i < past; ++i)
        window[i + 1] = Vec::load(ring + int64_t(i) * channels + c, lanes);
    for (int i = 0; i < ahead; ++i)
        window[past + 1 + i] = i < rows ? Vec::load(block + i * ldb + c, lanes) : Vec::zero();
    for (int t = 0; t < rows; ++t) {
        for (int i = 0; i < past + ahead; ++i)
            window[i] = window[i + 1];
        window[past + ahead] = t + ahead < rows ? Vec::load(block + (t + ahead) * ldb + c, lanes) : Vec::zero();
        Vec::F sum = Vec::zero();
        for (int j = 0; j < Taps; ++j)
            sum = Vec::fma(window[j], left_taps[j], sum);
        for (int d = 0; right && d < ahead; ++d)
            sum = Vec::fma(window[past + 1 + d], right_taps[d], sum);
        Vec::store(out + t * ldo + c, silu(sum), lanes);
    }
}

void conv(const float *ring, const float *block, int64_t ldb, const float *w, const float *right, int rows,
          int channels, int taps, int c0, int c1, float *out, int64_t ldo) {
    constexpr int most = 5; // wider filters take the plain path
    if (taps > most)
        return reference::conv(ring, block, ldb, w, right, rows, channels, taps, c0, c1, out, ldo);
    call_with_count<most>(0, taps, [&](int, auto count) {
        for_vectors(c1 - c0, [&](int i, auto lanes) {
            conv_channels<decltype(count)::value>(ring, block, ldb, w, right, rows, channels, c0 + i, out, ldo, lanes);
        });
    });
}

// Bits of |x| order like the numbers, infinities and NaNs last.
void quantize(const float *x, int64_t ldx, int rows, int k, int block, int8_t *q, int ldq, float *scale,
              int32_t *sum32) {
    constexpr int infinity = 0x7f800000;
    for (int r = 0; r < rows; ++r)
        for (int b = 0; b < k; b += block) {
            const float *in = x + r * ldx + b;
            int8_t *codes = q + int64_t(r) * ldq + b;
            Vec::I bits = Vec::zero_int();
            for (int i = 0; i < block; i += Vec::width)
                bits = Vec::max_int(bits, Vec::magnitude_bits(Vec::load(in + i)));
            const int max_bits = Vec::max_of_int(bits);
            const float max = Vec::float_of_bits(max_bits);
            const bool finite = max_bits < infinity, zero = !finite || max < kSmallestMax;
            const Vec::F inverse = Vec::set(zero ? 0.0f : 127.0f / max);
            for (int i = 0; i < block; i += 32) {
                Vec::I total = Vec::zero_int();
                for (int j = i; j < i + 32; j += Vec::width) {
                    const Vec::I code = zero ? Vec::zero_int() : Vec::to_int(Vec::load(in + j) * inverse);
                    total = Vec::add_int(total, code);
                    Vec::store_bytes(codes + j, code);
                }
                *sum32++ = Vec::sum_of_int(total);
            }
            *scale++ = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
        }
}

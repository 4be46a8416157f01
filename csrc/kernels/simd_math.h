// Functions of vectors and the loop over columns. Included inside an anonymous namespace after Vec.

// A number that is part of the type: a body called with Count<4> is compiled for 4.
template <int N> struct Count {
    static constexpr int value = N;
    constexpr operator int() const { return N; }
};

// Calls body(i, lanes) for the vectors that cover [0, n); only the last may have lanes < Vec::width.
template <typename Body> inline void for_vectors(int n, Body body) {
    int i = 0;
    for (; i + Vec::width <= n; i += Vec::width)
        body(i, Count<Vec::width>{});
    if (i < n)
        body(i, n - i);
}

inline float first(Vec::F x) { return x[0]; }

inline float sum_of(Vec::F x) { return Vec::sum4(x, x, x, x)[0]; }

// Relative error about 1e-7 in [-87.3, 88.3]; below it 0, above it infinity; NaN stays NaN.
inline Vec::F exp(Vec::F x) {
    const Vec::F lowest = Vec::set(-87.336544f), highest = Vec::set(89.0f);
    const Vec::F c = Vec::min(highest, Vec::max(lowest, x));
    const Vec::F n = Vec::round(c * Vec::set(1.44269504f));
    Vec::F r = Vec::fnma(n, Vec::set(0.693359375f), c); // ln 2 in two parts, the first exact in 9 bits
    r = Vec::fnma(n, Vec::set(-2.12194440e-4f), r);
    Vec::F p = Vec::set(1.9875691500e-4f); // Cephes' expf
    p = Vec::fma(p, r, Vec::set(1.3981999507e-3f));
    p = Vec::fma(p, r, Vec::set(8.3334519073e-3f));
    p = Vec::fma(p, r, Vec::set(4.1665795894e-2f));
    p = Vec::fma(p, r, Vec::set(1.6666665459e-1f));
    p = Vec::fma(p, r, Vec::set(5.0000001201e-1f));
    const Vec::F y = Vec::fma(p, r * r, r) + Vec::set(1.0f);
    return Vec::zero_if_less(y * Vec::pow2(n), x, lowest);
}

inline float exp(float x) { return first(exp(Vec::set(x))); }

inline Vec::F sigmoid(Vec::F x) { return Vec::set(1.0f) / (Vec::set(1.0f) + exp(Vec::zero() - x)); }

inline Vec::F silu(Vec::F x) { return x / (Vec::set(1.0f) + exp(Vec::zero() - x)); }

inline Vec::F gelu(Vec::F x) {
    const Vec::F inner = x * Vec::fma(x * x, Vec::set(kGeluCubic), Vec::set(kGeluLinear));
    return x / (Vec::set(1.0f) + exp(Vec::zero() - inner));
}
inline float inverse_sqrt(float x) { return 1.0f / Vec::sqrt(x); }

inline int smaller(int a, int b) { return a < b ? a : b; }

// out[r][0..3] = w[0..3] . x[r] over k columns: one accumulator per product, one order along k, so
// that a row's bits do not depend on R.
template <int R, typename Weight>
inline void dots(const Weight *const (&w)[4], const float *const (&x)[R], int k, Vec::Four (&out)[R]) {
    Vec::F acc[R][4];
    for (auto &row : acc)
        for (Vec::F &a : row)
            a = Vec::zero();
    for_vectors(k, [&](int i, auto lanes) {
        const Vec::F w0 = Vec::load(w[0] + i, lanes), w1 = Vec::load(w[1] + i, lanes);
        const Vec::F w2 = Vec::load(w[2] + i, lanes), w3 = Vec::load(w[3] + i, lanes);
        for (int r = 0; r < R; ++r) {
            const Vec::F xr = Vec::load(x[r] + i, lanes);
            acc[r][0] = Vec::fma(w0, xr, acc[r][0]);
            acc[r][1] = Vec::fma(w1, xr, acc[r][1]);
            acc[r][2] = Vec::fma(w2, xr, acc[r][2]);
            acc[r][3] = Vec::fma(w3, xr, acc[r][3]);
        }
    });
    for (int r = 0; r < R; ++r)
        out[r] = Vec::sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
}

// body(row, Count<count>) for count in 1..Most.
template <int Most, typename Body> inline void call_with_count(int row, int count, Body body) {
    if constexpr (Most > 0) {
        if (count == Most)
            body(row, Count<Most>{});
        else
            call_with_count<Most - 1>(row, count, body);
    }
}

// Splits [0, rows) into as few pieces of at most `Most` rows as will do, as even as can be:
// body(first row, Count<rows>).
template <int Most, typename Body> inline void for_row_blocks(int rows, Body body) {
    for (int pieces = (rows + Most - 1) / Most, row = 0; pieces > 0; --pieces) {
        const int count = (rows - row) / pieces;
        call_with_count<Most>(row, count, body);
        row += count;
    }
}

// Small products of floats in row-major matrices. Included inside an anonymous namespace after
// simd_math.h.

// A [m, depth] whose element (i, k) is at a[i * row + k * column]: also a transposed matrix.
struct Left {
    const float *a;
    int64_t row, column;
};

template <int R, int V, typename Lanes>
inline void gemm_block(int depth, Left left, const float *b, int64_t ldb, float *c, int64_t ldc, float keep,
                       Lanes lanes) {
    Vec::F acc[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v)
            acc[r][v] = keep == 0.0f ? Vec::zero() // C may hold anything
                                     : Vec::load(c + r * ldc + v * Vec::width, lanes) * Vec::set(keep);
    for (int k = 0; k < depth; ++k) {
        Vec::F row[V];
        for (int v = 0; v < V; ++v)
            row[v] = Vec::load(b + k * ldb + v * Vec::width, lanes);
        for (int r = 0; r < R; ++r) {
            const Vec::F factor = Vec::set(left.a[r * left.row + k * left.column]);
            for (int v = 0; v < V; ++v)
                acc[r][v] = Vec::fma(factor, row[v], acc[r][v]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v)
            Vec::store(c + r * ldc + v * Vec::width, acc[r][v], lanes);
}

// C [m, n] = keep C + A B; keep = 0 does not read C. Every element adds its products in order of k.
inline void gemm(int m, int n, int depth, Left left, const float *b, int64_t ldb, float *c, int64_t ldc, float keep) {
    constexpr int V = Vec::gemm_vectors;
    for_row_blocks<4>(m, [&](int i, auto count) {
        constexpr int R = decltype(count)::value;
        const Left rows{left.a + i * left.row, left.row, left.column};
        float *out = c + i * ldc;
        int j = 0;
        for (; j + V * Vec::width <= n; j += V * Vec::width)
            gemm_block<R, V>(depth, rows, b + j, ldb, out + j, ldc, keep, Count<Vec::width>{});
        for_vectors(n - j, [&](int v, auto lanes) {
            gemm_block<R, 1>(depth, rows, b + j + v, ldb, out + j + v, ldc, keep, lanes);
        });
    });
}

// out[i * ldo + j] = A_i . B_j for m rows of A and n rows of B, both along `depth` columns.
inline void gemm_rows(int m, int n, int depth, const float *a, int64_t lda, const float *b, int64_t ldb, float *out,
                      int64_t ldo) {
    for_row_blocks<Vec::dot_rows>(m, [&](int i, auto count) {
        constexpr int R = decltype(count)::value;
        const float *x[R];
        for (int r = 0; r < R; ++r)
            x[r] = a + (i + r) * lda;
        for (int j = 0; j < n; j += 4) {
            const float *w[4];
            for (int s = 0; s < 4; ++s)
                w[s] = b + smaller(j + s, n - 1) * ldb;
            Vec::Four y[R];
            dots<R>(w, x, depth, y);
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < 4 && j + s < n; ++s)
                    out[(i + r) * ldo + j + s] = y[r][s];
        }
    });
}

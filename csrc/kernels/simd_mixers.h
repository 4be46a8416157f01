// The gated delta rule and attention, written in Vec. Included inside an anonymous namespace after
// simd_gemm.h. Names of variables are those of the equations (reference_mixers.cc).

// Columns of S [dk, dv] that one strip holds.
struct Strip {
    float *s;
    int64_t ld;
};

// Adds to each of V vectors of columns: sum_i S[i, :] x[i], four partial sums to hide latency.
template <int V, typename Lanes>
inline void read_strip(Strip s, const float *x, int dk, Lanes lanes, Vec::F (&out)[V]) {
    Vec::F part[4][V];
    for (auto &sums : part)
        for (Vec::F &sum : sums)
            sum = Vec::zero();
    const auto add = [&](int i, Vec::F(&sums)[V]) {
        for (int v = 0; v < V; ++v)
            sums[v] = Vec::fma(Vec::load(s.s + i * s.ld + v * Vec::width, lanes), Vec::set(x[i]), sums[v]);
    };
    int i = 0;
    for (; i + 4 <= dk; i += 4) {
        add(i, part[0]);
        add(i + 1, part[1]);
        add(i + 2, part[2]);
        add(i + 3, part[3]);
    }
    for (int p = 0; i < dk; ++i, ++p)
        add(i, part[p]);
    for (int v = 0; v < V; ++v)
        out[v] = (part[0][v] + part[1][v]) + (part[2][v] + part[3][v]);
}

// to = decay from + k d^T, and out = to^T q on the way.
template <int V, typename Lanes>
inline void write_strip(Strip from, Strip to, float decay, const float *k, const float *q, int dk, Lanes lanes,
                        const Vec::F (&d)[V], Vec::F (&out)[V]) {
    Vec::F part[4][V];
    for (auto &sums : part)
        for (Vec::F &sum : sums)
            sum = Vec::zero();
    const Vec::F factor = Vec::set(decay);
    const auto update = [&](int i, Vec::F(&sums)[V]) {
        for (int v = 0; v < V; ++v) {
            const Vec::F old = Vec::load(from.s + i * from.ld + v * Vec::width, lanes);
            const Vec::F now = Vec::fma(Vec::set(k[i]), d[v], old * factor);
            Vec::store(to.s + i * to.ld + v * Vec::width, now, lanes);
            sums[v] = Vec::fma(now, Vec::set(q[i]), sums[v]);
        }
    };
    int i = 0;
    for (; i + 4 <= dk; i += 4) {
        update(i, part[0]);
        update(i + 1, part[1]);
        update(i + 2, part[2]);
        update(i + 3, part[3]);
    }
    for (int p = 0; i < dk; ++i, ++p)
        update(i, part[p]);
    for (int v = 0; v < V; ++v)
        out[v] = (part[0][v] + part[1][v]) + (part[2][v] + part[3][v]);
}

// All tokens over V vectors of columns. Between the first and the last token the strip lives in
// scratch, side by side: in place its rows would compete for few cache sets.
template <int V, typename Lanes> inline void commit_strip(const DeltaHead &h, int column, Lanes lanes) {
    const Strip state{h.state + column, h.dv}, scratch{h.scratch, V * Vec::width};
    for (int t = 0; t < h.rows; ++t) {
        const Strip from = t == 0 ? state : scratch, to = t == h.rows - 1 ? state : scratch;
        const float *k = h.k + t * h.ldqk, decay = exp(h.g[t * h.ldg]);
        Vec::F d[V], o[V];
        read_strip<V>(from, k, h.dk, lanes, d);
        for (int v = 0; v < V; ++v) {
            const Vec::F value = Vec::load(h.v + t * h.ldv + column + v * Vec::width, lanes);
            d[v] = Vec::set(h.beta[t * h.ldg]) * Vec::fnma(Vec::set(decay), d[v], value);
        }
        write_strip<V>(from, to, decay, k, h.q + t * h.ldqk, h.dk, lanes, d, o);
        for (int v = 0; v < V; ++v)
            Vec::store(h.o + t * h.ldo + column + v * Vec::width, o[v], lanes);
    }
}

inline void commit(const DeltaHead &h) {
    constexpr int pair = 2 * Vec::width;
    int column = 0;
    for (; column + pair <= h.dv; column += pair)
        commit_strip<2>(h, column, Count<Vec::width>{});
    for (; column < h.dv; column += Vec::width)
        commit_strip<1>(h, column, smaller(Vec::width, h.dv - column));
}

constexpr int kChunk = 32; // rows of one closed form

// V' = T (diag(beta) V - diag(beta e^G) K S) by forward substitution, so that T is never formed.
// Decays e^(G_i - G_j) are running products of factors <= 1: nothing can overflow.
inline void closed_chunk(const DeltaHead &h) {
    const int n = h.rows, dk = h.dk, dv = h.dv;
    float *fresh = h.scratch; // V' [n, dv]; first K S
    float mix[kChunk][kChunk], score[kChunk][kChunk], decay[kChunk] = {};
    gemm(n, dv, dk, {h.k, h.ldqk, 1}, h.state, dv, fresh, dv, 0.0f);
    gemm(n, dv, dk, {h.q, h.ldqk, 1}, h.state, dv, h.o, h.ldo, 0.0f);
    gemm_rows(n, n, dk, h.k, h.ldqk, h.k, h.ldqk, mix[0], kChunk);
    gemm_rows(n, n, dk, h.q, h.ldqk, h.k, h.ldqk, score[0], kChunk);
    float since = 1; // e^(G_i)
    for (int i = 0; i < n; ++i) {
        const float step = exp(h.g[i * h.ldg]), beta = h.beta[i * h.ldg];
        since *= step;
        for (int j = 0; j < i; ++j) {
            decay[j] *= step; // e^(G_i - G_j)
            mix[i][j] *= -beta * decay[j];
            score[i][j] *= decay[j];
        }
        decay[i] = 1;
        float *row = fresh + int64_t(i) * dv;
        for_vectors(dv, [&](int c, auto lanes) {
            const Vec::F value = Vec::load(h.v + i * h.ldv + c, lanes);
            const Vec::F left = Vec::fnma(Vec::set(since), Vec::load(row + c, lanes), value);
            Vec::store(row + c, Vec::set(beta) * left, lanes);
        });
        gemm(1, dv, i, {mix[i], 0, 1}, fresh, dv, row, dv, 1.0f);
        gemm(1, dv, i + 1, {score[i], 0, 1}, fresh, dv, h.o + i * h.ldo, h.ldo, since);
    }
    for (int i = 0; i < n; ++i)
        for_vectors(dv, [&](int c, auto lanes) {
            float *at = fresh + int64_t(i) * dv + c;
            Vec::store(at, Vec::load(at, lanes) * Vec::set(decay[i]), lanes);
        });
    gemm(dk, dv, n, {h.k, 1, h.ldqk}, fresh, dv, h.state, dv, since);
}

inline void closed(const DeltaHead &h) {
    for (int t = 0; t < h.rows; t += kChunk) {
        DeltaHead part = h;
        part.rows = smaller(kChunk, h.rows - t);
        part.q += t * h.ldqk;
        part.k += t * h.ldqk;
        part.v += t * h.ldv;
        part.g += t * h.ldg;
        part.beta += t * h.ldg;
        part.o += t * h.ldo;
        closed_chunk(part);
    }
}

// Scores -> exp(score - max) in place, for `n` of `padded` places (the rest become 0); returns the
// sum. `max` is the largest so far and is raised.
inline float exponentiate(float *scores, int n, int padded, float &max) {
    for (int i = n; i < padded; ++i)
        scores[i] = -__builtin_inff();
    Vec::F maxima = Vec::set(max), sum = Vec::zero();
    for (int i = 0; i < padded; i += Vec::width)
        maxima = Vec::max(Vec::load(scores + i), maxima);
    max = Vec::max_of(maxima);
    for (int i = 0; i < padded; i += Vec::width) {
        const Vec::F weight = exp(Vec::load(scores + i) - Vec::set(max));
        Vec::store(scores + i, weight);
        sum = sum + weight;
    }
    return sum_of(sum);
}

inline int round_up(int n) { return (n + Vec::width - 1) / Vec::width * Vec::width; }

// Four rows at a time: softmax over the rows and the history, then one product for the values.
inline void preview(const PreviewHead &p) {
    const DeltaHead &h = p.d;
    constexpr int rows = 4;
    const int n = h.rows, padded = round_up(n + 1);
    float *weights = h.scratch; // [rows, padded]
    for (int t = 0; t < p.queries; t += rows) {
        const int m = smaller(rows, p.queries - t);
        float *o = h.o + t * h.ldo;
        const float *q = h.q + t * h.ldqk;
        gemm_rows(m, n, h.dk, q, h.ldqk, h.k, h.ldqk, weights, padded);
        gemm(m, h.dv, h.dk, {q, h.ldqk, 1}, h.state, h.dv, o, h.ldo, 0.0f);
        for (int r = 0; r < m; ++r) {
            float *row = weights + r * padded;
            for (int s = 0; s < n; ++s)
                row[s] *= p.logit_scale;
            row[n] = p.history_logit;
            float max = -__builtin_inff();
            const float inverse = 1.0f / exponentiate(row, n + 1, padded, max);
            const Vec::F history = Vec::set(row[n] * inverse * p.history_scale);
            for (int s = 0; s < n; ++s)
                row[s] *= p.value_beta ? inverse * h.beta[s * h.ldg] : inverse;
            for_vectors(h.dv, [&](int c, auto lanes) {
                float *at = o + r * h.ldo + c;
                Vec::store(at, Vec::load(at, lanes) * history, lanes);
            });
        }
        gemm(m, h.dv, n, {weights, padded, 1}, h.v, h.ldv, o, h.ldo, 1.0f);
    }
}

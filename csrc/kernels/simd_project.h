// Products with float weights, and the head's statistics over products of any kind. Included inside
// an anonymous namespace after simd_math.h.

// The product with packed weights, all rows: simd_packed.h.
void packed(const MatmulCall &call, const Output &out);

template <int R, typename Weight>
inline void float_rows(const MatmulCall &call, const Output &out, Columns range, int row0) {
    const float *x[R];
    for (int r = 0; r < R; ++r)
        x[r] = call.a.x + source_row(call, row0 + r) * call.a.ldx;
    const auto *data = static_cast<const Weight *>(call.w.data);
    for (int i = range.first; i < range.last; i += 4) {
        const Weight *w[4];
        for (int j = 0; j < 4; ++j) // past the last row its products are computed again and dropped
            w[j] = data + int64_t(smaller(i + j, range.last - 1)) * call.w.k;
        Vec::Four y[R];
        dots<R>(w, x, call.w.k, y);
        for (int r = 0; r < R; ++r)
            for (int j = 0; j < 4 && i + j < range.last; ++j)
                *out.at(row0 + r, i + j) = y[r][j];
    }
}

// Tiles outside, rows inside: the weights of a pair of tiles stay in the first cache for all rows.
void project(const MatmulCall &call, const Output &out) {
    if (call.w.group)
        return packed(call, out);
    const int last = columns(call).last;
    for (int tile = call.tile0; tile < call.tile1; tile += 2) {
        const int end = smaller(2, call.tile1 - tile) + tile;
        const Columns range = {tile * kTileRows, smaller(end * kTileRows, last)};
        for_row_blocks<Vec::dot_rows>(call.rows, [&](int row, auto rows) {
            constexpr int R = decltype(rows)::value;
            if (call.w.scheme == Scheme::f32)
                float_rows<R, float>(call, out, range, row);
            else
                float_rows<R, uint16_t>(call, out, range, row);
        });
    }
}

void matmul(const MatmulCall &call) { project(call, {call.y, call.ldy, 0}); }

// Penalties of ids [first, first + n).
inline void penalise(const HeadRule &rule, int first, int n, int rows, float *logits) {
    int p = 0;
    for (int past = rule.penalty_count; p < past;) {
        const int middle = p + (past - p) / 2;
        (rule.penalties[middle].id < first ? p : past) = middle + (rule.penalties[middle].id < first);
    }
    for (; p < rule.penalty_count && rule.penalties[p].id < first + n; ++p)
        for (int r = 0; r < rows; ++r) {
            float &x = logits[r * kHeadStripe + rule.penalties[p].id - first];
            x = (x > 0 ? x / rule.repetition : x * rule.repetition) - rule.penalties[p].subtract;
        }
}

// cap * tanh(z / cap), as 1 - 2 / (1 + e^2y): off by a few units in the last place of the cap. What is not finite must
// not look like the cap: z - z makes it NaN.
inline void soften(float cap, int n, int rows, float *logits) {
    const Vec::F twice = Vec::set(2 / cap), one = Vec::set(1.0f), two = Vec::set(2.0f);
    for (int r = 0; r < rows; ++r)
        for_vectors(n, [&](int i, auto lanes) {
            const Vec::F z = Vec::load(logits + r * kHeadStripe + i, lanes);
            const Vec::F soft = Vec::set(cap) * (one - two / (one + exp(z * twice))) + (z - z);
            Vec::store(logits + r * kHeadStripe + i, soft, lanes);
        });
}

// Known logits of ids [first, first + n).
inline void copy_logits(const MatmulCall &call, int first, int n, float *out) {
    for (int r = 0; r < call.rows; ++r) {
        const float *logits = call.a.x + source_row(call, r) * call.a.ldx + first;
        for (int i = 0; i < n; ++i)
            out[r * kHeadStripe + i] = logits[i];
    }
}

void head_logits(const MatmulCall &call, const HeadRule &rule, float *out) {
    const Columns range = columns(call);
    const int last = smaller(smaller(range.last, rule.valid), range.first + kHeadStripe);
    const int n = last > range.first ? last - range.first : 0;
    if (n > 0) {
        MatmulCall stripe = call;
        stripe.tile1 = (last + kTileRows - 1) / kTileRows;
        if (call.w.data)
            project(stripe, {out, kHeadStripe, range.first});
        else
            copy_logits(call, range.first, n, out);
        if (rule.softcap > 0)
            soften(rule.softcap, n, call.rows, out);
        penalise(rule, range.first, n, call.rows, out);
    }
    const int banned = rule.banned - range.first;
    for (int r = 0; r < call.rows; ++r) {
        float *logits = out + r * kHeadStripe;
        for (int i = n; i < kHeadStripe; ++i)
            logits[i] = -__builtin_inff();
        if (0 <= banned && banned < n)
            logits[banned] = -__builtin_inff();
    }
}

// Of kHeadStripe logits from id `first` on. A NaN is no maximum, but reaches the sum, and so does infinity.
inline HeadStats stats_of(const float *logits, int first, float inverse_temperature) {
    constexpr float lowest = -__builtin_inff();
    Vec::F maxima = Vec::set(lowest);
    for (int i = 0; i < kHeadStripe; i += Vec::width)
        maxima = Vec::max(Vec::load(logits + i), maxima);
    HeadStats stats = {-1, Vec::max_of(maxima), 0.0f};
    for (int i = 0; stats.argmax < 0 && stats.max > lowest; ++i)
        if (logits[i] == stats.max)
            stats.argmax = first + i;
    const Vec::F shift = Vec::set(stats.max > lowest ? stats.max : 0.0f), factor = Vec::set(inverse_temperature);
    Vec::F sum = Vec::zero();
    for (int i = 0; i < kHeadStripe; i += Vec::width)
        sum = sum + exp((Vec::load(logits + i) - shift) * factor);
    stats.sum_exp = sum_of(sum);
    if (stats.sum_exp != stats.sum_exp)
        stats.max = stats.sum_exp;
    return stats;
}

void head_stats(const MatmulCall &call, const HeadRule &rule, float *scratch, HeadStats *out) {
    MatmulCall stripe = call;
    for (; stripe.tile0 < call.tile1; stripe.tile0 += kHeadStripe / kTileRows, out += call.rows) {
        head_logits(stripe, rule, scratch);
        for (int r = 0; r < call.rows; ++r)
            out[r] = stats_of(scratch + r * kHeadStripe, stripe.tile0 * kTileRows, rule.inverse_temperature);
    }
}

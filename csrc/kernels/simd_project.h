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

// Adds the logits of ids id, id + 1, ... (`vectors` full vectors, -inf where there is no real id) to a
// row's statistics. A NaN is no maximum, but reaches the sum.
inline void add_logits(const float *logits, int vectors, int id, HeadStats &stats) {
    Vec::F maxima = Vec::load(logits);
    for (int v = 0; v < vectors; ++v)
        maxima = Vec::max(Vec::load(logits + v * Vec::width), maxima);
    const float max = Vec::max_of(maxima);
    if (max > stats.max) {
        int at = 0;
        while (at < vectors * Vec::width - 1 && logits[at] != max)
            ++at;
        stats.sum_exp *= exp(stats.max - max);
        stats.max = max;
        stats.argmax = id + at;
    }
    Vec::F sum = Vec::zero();
    for (int v = 0; v < vectors; ++v)
        sum = sum + exp(Vec::load(logits + v * Vec::width) - Vec::set(stats.max));
    stats.sum_exp += sum_of(sum);
}

void head_stats(const MatmulCall &call, int valid, int banned, float *scratch, HeadStats *out) {
    constexpr float infinity = __builtin_inff();
    for (int r = 0; r < call.rows; ++r)
        out[r] = {-1, -infinity, 0.0f};
    const Columns all = columns(call);
    const int last = smaller(all.last, valid);
    for (int first = all.first; first < last; first += kHeadStripe) {
        MatmulCall stripe = call;
        const int n = smaller(kHeadStripe, last - first), vectors = (n + Vec::width - 1) / Vec::width;
        const bool has_banned = first <= banned && banned < first + n;
        if (n == 1 && has_banned)
            continue;
        stripe.tile0 = first / kTileRows;
        stripe.tile1 = (first + n + kTileRows - 1) / kTileRows;
        project(stripe, {scratch, kHeadStripe, first});
        for (int r = 0; r < call.rows; ++r) {
            float *logits = scratch + int64_t(r) * kHeadStripe;
            for (int i = n; i < vectors * Vec::width; ++i)
                logits[i] = -infinity;
            if (has_banned)
                logits[banned - first] = -infinity;
            add_logits(logits, vectors, first, out[r]);
        }
    }
    for (int r = 0; r < call.rows; ++r)
        if (out[r].sum_exp != out[r].sum_exp) // from a NaN or an infinite logit
            out[r].max = out[r].sum_exp;
}

#include "model/head.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

// x [rows, H] <- final norm of the chosen rows, and the codes that the head reads
Product normalise(Model &m, const float *hidden, const std::vector<int> &rows) {
    const int width = m.spec.hidden_size, count = int(rows.size());
    const Matrix &head = m.weights.head;
    m.scratch.reserve(count);
    m.pool.run(count, [&](int64_t i, int) {
        m.kernels.rmsnorm(hidden + int64_t(rows[size_t(i)]) * width, width, m.weights.final_norm, m.spec.norm_offset,
                          m.spec.rms_eps, 1, width, m.scratch.x.row(i), width);
        m.scratch.x.quantize(m.kernels, form_of(head), i);
    });
    m.counters.bytes_read += matrix_bytes(head);
    return {head, m.scratch.x.activations(head, 0, count), nullptr, count, nullptr, 0};
}

// Statistics of two disjoint ranges of ids, `b` behind `a`.
HeadStats join(const HeadStats &a, const HeadStats &b) {
    if (a.argmax < 0 || b.argmax < 0)
        return a.argmax < 0 ? b : a;
    const HeadStats &best = b.max > a.max ? b : a;
    const float sum = a.sum_exp * std::exp(a.max - best.max) + b.sum_exp * std::exp(b.max - best.max);
    return {best.argmax, best.max, sum};
}

[[noreturn]] void not_finite() { throw Error("head: a logit is not finite"); }

} // namespace

void head_logits(Model &m, const float *hidden, const std::vector<int> &rows, float *out) {
    const int64_t vocab = m.spec.vocab_size;
    Product product = normalise(m, hidden, rows);
    product.y = out;
    product.ldy = vocab;
    multiply(m.kernels, m.pool, {product});
    m.pool.run(int64_t(rows.size()), [&](int64_t r, int) {
        if (!std::all_of(out + r * vocab, out + (r + 1) * vocab, [](float x) { return std::isfinite(x); }))
            not_finite();
    });
}

void head_stats(Model &m, const float *hidden, const std::vector<int> &rows, std::vector<HeadStats> &out) {
    const Product product = normalise(m, hidden, rows);
    const int tiles = tiles_of(m.spec.valid_vocab), ranges = (tiles + kHeadRangeTiles - 1) / kHeadRangeTiles;
    const size_t count = rows.size();
    HeadStats *parts = m.scratch.head_parts.data();
    m.pool.run(ranges, [&](int64_t i, int worker) {
        const int tile0 = int(i) * kHeadRangeTiles, tile1 = std::min(tile0 + kHeadRangeTiles, tiles);
        m.kernels.head_stats(call_of(product, tile0, tile1), m.spec.valid_vocab, m.spec.mask_token_id,
                             m.scratch.head_work.data() + worker * m.scratch.head_share, parts + i * int64_t(count));
    });
    out.assign(parts, parts + count);
    for (size_t i = 0; i < count; i++) {
        for (size_t range = 1; range < size_t(ranges); range++)
            out[i] = join(out[i], parts[range * count + i]);
        if (!std::isfinite(out[i].max) || !std::isfinite(out[i].sum_exp))
            not_finite();
    }
}

} // namespace clover

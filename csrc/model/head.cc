#include "model/head.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

// x [rows, H] <- final norm of the chosen rows, and the codes that the head reads
Product normalise(Model &m, const float *hidden, const std::vector<int> &rows, const Model *normed_by) {
    const Model &last = normed_by ? *normed_by : m;
    const int width = m.spec.hidden_size, count = int(rows.size());
    const Matrix &head = m.weights.head;
    m.scratch.reserve(count);
    m.pool.run(count, [&](int64_t i, int) {
        m.kernels.rmsnorm(hidden + int64_t(rows[size_t(i)]) * width, width, last.weights.final_norm,
                          last.spec.norm_offset, last.spec.rms_eps, 1, width, m.scratch.x.row(i), width);
        m.scratch.x.quantize(m.kernels, form_of(head), i);
    });
    m.counters.bytes_read += matrix_bytes(head);
    return {head, m.scratch.x.activations(head, 0, count), nullptr, count, nullptr, 0};
}

// Logits of the chosen rows, by the model's executor, as a product: kernels.h.
Product computed(Model &m, const float *hidden, const std::vector<int> &rows) {
    const int vocab = m.spec.vocab_size, width = m.spec.hidden_size, count = int(rows.size());
    m.scratch.reserve(count);
    float *chosen = m.scratch.y.data();
    for (int i = 0; i < count; i++)
        std::copy_n(hidden + int64_t(rows[size_t(i)]) * width, width, chosen + int64_t(i) * width);
    const float *logits = count ? m.executor->head(chosen, count) : nullptr;
    return {{nullptr, Scheme::f32, vocab, vocab, 0},
            {logits, vocab, nullptr, 0, nullptr, nullptr, count, vocab, block_of(vocab)},
            nullptr,
            count,
            nullptr,
            0};
}

// What is still to be done to logits.
float softcap_of(const Model &m) { return m.executor ? 0 : m.spec.logit_softcap; }

[[noreturn]] void not_finite() { throw Error("head: a logit is not finite"); }

} // namespace

void head_logits(Model &m, const float *hidden, const std::vector<int> &rows, float *out, const Model *normed_by) {
    const int64_t vocab = m.spec.vocab_size;
    const auto room = std::ptrdiff_t(m.scratch.rows());
    if (room && std::ptrdiff_t(rows.size()) > room) { // of a pass in chunks
        head_logits(m, hidden, {rows.begin(), rows.begin() + room}, out, normed_by);
        return head_logits(m, hidden, {rows.begin() + room, rows.end()}, out + room * vocab, normed_by);
    }
    if (m.executor) {
        std::copy_n(computed(m, hidden, rows).a.x, int64_t(rows.size()) * vocab, out);
    } else {
        Product product = normalise(m, hidden, rows, normed_by);
        product.y = out;
        product.ldy = vocab;
        multiply(m.kernels, m.pool, {product});
    }
    const float cap = softcap_of(m);
    m.pool.run(int64_t(rows.size()), [&](int64_t r, int) {
        if (!std::all_of(out + r * vocab, out + (r + 1) * vocab, [](float x) { return std::isfinite(x); }))
            not_finite();
        for (float *z = out + r * vocab; cap > 0 && z < out + (r + 1) * vocab; z++)
            *z = cap * std::tanh(*z / cap);
    });
}

HeadPass::HeadPass(const Kernels &kernels, ThreadPool &pool, const Product &product, const HeadRule &rule,
                   HeadStats *parts, float *work)
    : kernels_(kernels), pool_(pool), product_(product), rule_(rule), parts_(parts), work_(work) {
    const int tiles = tiles_of(rule.valid), ranges = (tiles + kHeadRangeTiles - 1) / kHeadRangeTiles;
    stripes_ = head_stripes(tiles);
    pool_.run(ranges, [&](int64_t i, int worker) {
        const int tile0 = int(i) * kHeadRangeTiles, tile1 = std::min(tile0 + kHeadRangeTiles, tiles);
        kernels_.head_stats(call_of(product_, tile0, tile1), rule_, work_ + worker * head_scratch_floats(rows()),
                            parts + int64_t(head_stripes(tile0)) * rows());
    });
    totals_.assign(parts_, parts_ + rows());
    for (int row = 0; row < rows(); row++) {
        HeadStats &total = totals_[size_t(row)];
        for (int stripe = 1; stripe < stripes_; stripe++)
            total = join(total, part(stripe, row));
        if (!std::isfinite(total.max) || !std::isfinite(total.sum_exp))
            not_finite();
    }
}

// Of two disjoint sets of ids, `b` behind `a`.
HeadStats HeadPass::join(const HeadStats &a, const HeadStats &b) const {
    if (std::isnan(a.max) || std::isnan(b.max))
        return std::isnan(a.max) ? a : b;
    if (a.argmax < 0 || b.argmax < 0)
        return a.argmax < 0 ? b : a;
    const HeadStats &best = b.max > a.max ? b : a;
    const auto moved = [&](const HeadStats &s) {
        return s.sum_exp * std::exp((s.max - best.max) * rule_.inverse_temperature);
    };
    return {best.argmax, best.max, moved(a) + moved(b)};
}

void HeadPass::visit(const std::vector<Visit> &visits, const Look &look) {
    std::vector<size_t> first; // visit of each stripe that is looked at
    for (size_t i = 0; i < visits.size(); i++)
        if (i == 0 || visits[i].stripe != visits[i - 1].stripe)
            first.push_back(i);
    const int tiles = tiles_of(rule_.valid);
    pool_.run(int64_t(first.size()), [&](int64_t i, int worker) {
        const size_t begin = first[size_t(i)],
                     end = size_t(i) + 1 < first.size() ? first[size_t(i) + 1] : visits.size();
        std::vector<int> index;
        for (size_t v = begin; v < end; v++)
            index.push_back(visits[v].row);
        const int tile0 = visits[begin].stripe * (kHeadStripe / kTileRows);
        MatmulCall call = call_of(product_, tile0, std::min(tile0 + kHeadStripe / kTileRows, tiles));
        call.index = index.data();
        call.rows = int(index.size());
        float *logits = work_ + worker * head_scratch_floats(rows());
        kernels_.head_logits(call, rule_, logits);
        const int id = tile0 * kTileRows, count = std::min(kHeadStripe, rule_.valid - id);
        for (size_t v = begin; v < end; v++)
            look(v, id, logits + int64_t(v - begin) * kHeadStripe, count);
    });
}

HeadPass head_pass(Model &m, const float *hidden, const std::vector<int> &rows, HeadRule rule, bool mask_too,
                   const Model *normed_by) {
    rule.valid = m.spec.valid_vocab;
    rule.banned = mask_too ? -1 : m.spec.mask_token_id;
    rule.softcap = softcap_of(m);
    const Product product = m.executor ? computed(m, hidden, rows) : normalise(m, hidden, rows, normed_by);
    return HeadPass(m.kernels, m.pool, product, rule, m.scratch.head_parts.data(), m.scratch.head_work.data());
}

} // namespace clover

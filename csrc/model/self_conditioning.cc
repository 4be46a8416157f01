// Self-conditioning: h = rmsnorm(e + down(act(gate(z)) * up(z))), z = norm(soft), where soft [n, H] is what
// soften() made of the preview before, and nothing in the first one.
#include "model/self_conditioning.h"

#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace clover {
namespace {

constexpr int kStripes = kSoftChunk / kHeadStripe; // of a chunk

// The sums over one chunk of ids after the other.
class Mean {
  public:
    Mean(Model &model, HeadPass &head, float *soft)
        : m_(model), head_(head), soft_(soft), entropy(size_t(head.rows())) {
        for (int row = 0; row < head.rows(); row++)
            log_sums_.push_back(std::log(head.total(row).sum_exp));
        if (soft)
            std::fill_n(soft, int64_t(head.rows()) * m_.spec.hidden_size, 0.0f);
    }

    void add(int stripe0) {
        visits_.clear();
        for (int s = stripe0; s < std::min(stripe0 + kStripes, head_.stripes()); s++)
            for (int row = 0; row < head_.rows(); row++)
                if (head_.part(s, row).argmax >= 0 && std::exp(log_probability(row, head_.part(s, row).max)) > least_)
                    visits_.push_back({s, row});
        if (visits_.empty())
            return;
        weigh(stripe0 * kHeadStripe);
        if (!soft_)
            return;
        std::vector<int> ids = pack_columns();
        embed_columns(stripe0 * kHeadStripe, ids);
        add_rows(int(ids.size()));
    }

  private:
    float log_probability(int row, float logit) const {
        return (logit - head_.total(row).max) * head_.rule().inverse_temperature - log_sums_[size_t(row)];
    }

    // soft_weights [rows_, kSoftChunk] <- probabilities of the ids from `first` on, and the entropy's terms
    void weigh(int first) {
        rows_.clear();
        std::vector<int> place(size_t(head_.rows()), -1);
        for (const HeadPass::Visit &v : visits_)
            if (place[size_t(v.row)] < 0) {
                place[size_t(v.row)] = int(rows_.size());
                rows_.push_back(v.row);
            }
        float *weights = soft_ ? m_.scratch.soft_weights.data() : nullptr;
        if (weights)
            std::fill_n(weights, int64_t(rows_.size()) * kSoftChunk, 0.0f);
        std::vector<double> terms(visits_.size());
        head_.visit(visits_, [&](size_t visit, int id, const float *logits, int count) {
            const int row = visits_[visit].row;
            for (int i = 0; i < count; i++) {
                const float log_p = log_probability(row, logits[i]), p = std::exp(log_p);
                if (!(p > least_))
                    continue;
                terms[visit] -= double(p) * log_p;
                if (weights)
                    weights[int64_t(place[size_t(row)]) * kSoftChunk + id - first + i] = p;
            }
        });
        for (size_t v = 0; v < visits_.size(); v++)
            entropy[size_t(visits_[v].row)] += terms[v];
    }

    // Offsets of the ids that any row gives weight to; their weights move to the front.
    std::vector<int> pack_columns() {
        float *weights = m_.scratch.soft_weights.data();
        std::vector<char> any(kSoftChunk, 0);
        for (size_t r = 0; r < rows_.size(); r++)
            for (int i = 0; i < kSoftChunk; i++)
                any[size_t(i)] |= weights[int64_t(r) * kSoftChunk + i] > 0;
        std::vector<int> ids;
        for (int i = 0; i < kSoftChunk; i++)
            if (any[size_t(i)])
                ids.push_back(i);
        m_.pool.run(int64_t(rows_.size()), [&](int64_t r, int) {
            for (size_t c = 0; c < ids.size(); c++)
                weights[r * kSoftChunk + int64_t(c)] = weights[r * kSoftChunk + ids[c]];
        });
        return ids;
    }

    // soft_columns [H, ids] <- the embeddings of these ids
    void embed_columns(int first, const std::vector<int> &ids) {
        constexpr int64_t batch = 16; // of one cache line
        const int64_t width = m_.spec.hidden_size, count = int64_t(ids.size());
        float *columns = m_.scratch.soft_columns.data();
        m_.pool.run((count + batch - 1) / batch, [&](int64_t piece, int) {
            const int64_t c0 = piece * batch, rows = std::min(batch, count - c0);
            std::vector<float> embedding(size_t(rows * width));
            for (int64_t r = 0; r < rows; r++)
                m_.kernels.dequantize_row(m_.weights.embed, first + ids[size_t(c0 + r)], embedding.data() + r * width);
            for (int64_t i = 0; i < width; i++)
                for (int64_t r = 0; r < rows; r++)
                    columns[i * count + c0 + r] = embedding[size_t(r * width + i)];
        });
        m_.counters.bytes_read += matrix_bytes(m_.weights.embed) / m_.spec.vocab_size * count;
    }

    // soft += embed_scale * weights . columns
    void add_rows(int columns) {
        const int width = m_.spec.hidden_size, rows = int(rows_.size());
        const Matrix embeddings{m_.scratch.soft_columns.data(), Scheme::f32, width, columns, 0};
        const Activations weights{
            m_.scratch.soft_weights.data(), kSoftChunk, nullptr, 0, nullptr, nullptr, rows, columns, block_of(columns)};
        float *sums = m_.scratch.y.data();
        multiply(m_.kernels, m_.pool, {{embeddings, weights, nullptr, rows, sums, width}});
        m_.pool.run(rows, [&](int64_t r, int) {
            float *out = soft_ + int64_t(rows_[size_t(r)]) * width;
            for (int64_t i = 0; i < width; i++)
                out[i] += m_.spec.embed_scale * sums[r * width + i];
        });
    }

    Model &m_;
    HeadPass &head_;
    float *soft_;
    // Probabilities up to this count nothing: all such ids together weigh less than half a unit in the last place of 1.
    const float least_ = 0x1p-25f / float(m_.spec.valid_vocab);
    std::vector<float> log_sums_; // of each row's exponentials
    std::vector<HeadPass::Visit> visits_;
    std::vector<int> rows_; // that the chunk has visits of

  public:
    std::vector<double> entropy;
};

} // namespace

std::vector<double> soften(Model &m, HeadPass &head, float *soft) {
    Mean mean(m, head, soft);
    for (int stripe = 0; stripe < head.stripes(); stripe += kStripes)
        mean.add(stripe);
    return mean.entropy;
}

void condition(Pass &p) {
    Model &m = p.model;
    const SelfConditioning &w = m.weights.self_conditioning;
    const int width = m.spec.hidden_size;
    if (p.soft) {
        m.pool.run(p.rows, [&](int64_t r, int) {
            m.kernels.rmsnorm(p.soft + r * width, width, w.norm, m.spec.norm_offset, m.spec.rms_eps, 1, width,
                              m.scratch.x.row(r), width);
            m.scratch.x.quantize(m.kernels, form_of(w.forward.gate_up), r);
        });
        gated_feed_forward(p, w.forward); // of nothing it would be nothing
    }
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *h = m.scratch.h.data() + r * width, *y = m.scratch.y.data() + r * width;
        for (int i = 0; i < width; i++)
            h[i] += y[i];
        std::fill_n(y, width, 0.0f);
        m.kernels.rmsnorm(h, width, m.scratch.ones.data(), 0, m.spec.rms_eps, 1, width, h, width);
    });
}

} // namespace clover

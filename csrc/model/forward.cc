// The page of equations (ARCHITECTURE.md): embed, then per layer h += mixer(norm1(h)),
// h += feed_forward(norm2(h)), h *= the layer's scale where it has one.
#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace clover {
namespace {

// h [n, H] <- embedding rows; y <- 0
void embed(Pass &p) {
    Model &m = p.model;
    const Model &words = p.words ? *p.words : m;
    const int64_t width = m.spec.hidden_size;
    const float scale = words.spec.embed_scale;
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *h = p.h() + r * width;
        m.kernels.dequantize_row(words.weights.embed, p.ids[size_t(p.row0 + r)], h);
        for (int64_t i = 0; scale != 1 && i < width; i++)
            h[i] *= scale;
        std::fill_n(p.y() + r * width, width, 0.0f);
    });
    m.counters.bytes_read += matrix_bytes(words.weights.embed) / m.spec.vocab_size * p.rows;
}

// out [N, rotary_dim] <- cos, then sin, of position * inv_freq. Angles in double: in float a position of 100 000
// would be off by 0.004.
void rotary_angles(Pass &p, const std::vector<double> &inv_freq, double factor, float *out) {
    const size_t half = inv_freq.size();
    for (int64_t r = 0; r < p.total; r++) {
        float *row = out + r * int64_t(2 * half);
        for (size_t i = 0; i < half; i++) {
            const double angle = double(p.start + p.place[size_t(r)]) * inv_freq[i];
            row[i] = float(factor * std::cos(angle));
            row[half + i] = float(factor * std::sin(angle));
        }
    }
}

// h += y; false when a value is not finite
bool add_row(float *h, const float *y, int64_t n) {
    constexpr uint32_t exponent = 0x7f800000; // all ones in infinities and NaN
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        h[i] += y[i];
        uint32_t bits;
        std::memcpy(&bits, h + i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

// The state's `kept` <- the residual stream behind a layer, if it is one of those that somebody reads.
void keep_row(Pass &p, int64_t row, int layer, const float *h) {
    const std::vector<int> &layers = p.state.kept_layers;
    const auto at = std::find(layers.begin(), layers.end(), layer);
    if (at == layers.end() || row >= p.committed)
        return;
    const int64_t width = p.model.spec.hidden_size, count = int64_t(layers.size());
    std::copy_n(h, width, p.state.kept.data() + (row * count + (at - layers.begin())) * width);
}

// h += y of the half before, `half` halves being done; behind a whole layer h *= its scale.
void add_half(Pass &p, int64_t row, int half) {
    const int64_t width = p.model.spec.hidden_size;
    float *h = p.h() + row * width;
    const bool finite = add_row(h, p.y() + row * width, width);
    const int layer = half && half % 2 == 0 ? half / 2 - 1 : -1; // that has ended
    if (p.model.spec.layer_scales && layer >= 0) {
        const LayerWeights &w = p.layer(layer);
        const float scale = row < p.committed ? w.commit_scale : w.preview_scale;
        std::transform(h, h + width, h, [scale](float x) { return x * scale; });
    }
    if (layer >= 0)
        keep_row(p, row, layer, h);
    if (finite)
        return;
    int none = -1;
    p.bad_half.compare_exchange_strong(none, half); // halves run one after the other: the first one stays
}

void normalise_row(Pass &p, int64_t r, const float *norm, Forms forms) {
    Model &m = p.model;
    const int width = m.spec.hidden_size;
    m.kernels.rmsnorm(p.h() + r * width, width, norm, m.spec.norm_offset, m.spec.rms_eps, 1, width, m.scratch.x.row(r),
                      width);
    m.scratch.x.quantize(m.kernels, forms, r);
}

// h += y, x [n, H] <- rmsnorm(h), and its codes in the group sizes that the next products read
void next_input(Pass &p, int half, const float *norm, Forms forms) {
    p.model.pool.run(p.rows, [&](int64_t r, int) {
        add_half(p, r, half);
        normalise_row(p, r, norm, forms);
    });
}

void observe(const Pass &p, int layer, Half half) {
    if (p.model.observer)
        p.model.observer(layer, half, p.rows);
}

void finish(Pass &p) {
    const int halves = 2 * int(p.model.spec.layers.size());
    p.each_chunk([&] { p.model.pool.run(p.rows, [&](int64_t r, int) { add_half(p, r, halves); }); });
    const int bad = p.bad_half.load();
    if (bad < 0)
        return;
    if (bad == 0)
        throw Error("an embedding row is not finite");
    const char *part = (bad - 1) % 2 ? "feed-forward" : "mixer";
    throw Error("layer " + std::to_string((bad - 1) / 2) + ": the " + part + "'s output is not finite");
}

// Who sees whom: the places that a row's block shows it.
Span seen_from(const Pass &p, const BlockGrid &grid, int row) {
    const bool commit = row < p.committed;
    const int all = p.committed + p.block_rows;
    if (!p.model.spec.sees_ahead())
        return {row, 1, commit ? 0 : p.committed, commit ? p.committed : all, commit};
    const int64_t at = p.start + p.place[size_t(row)];
    const int64_t begin = std::max<int64_t>(0, grid.begin(at) - p.start);
    return {row, 1, int(begin), int(std::min<int64_t>(grid.end(at) - p.start, commit ? p.committed : all)), false};
}

// Rows of a chunk that see the same, as many as one piece of work takes.
std::vector<Span> spans_of(const Pass &p, const BlockGrid &grid, int row0, int rows) {
    std::vector<Span> spans;
    for (int row = 0; row < rows; row++) {
        Span next = seen_from(p, grid, row0 + row);
        next.row0 = row;
        Span *last = spans.empty() ? nullptr : &spans.back();
        if (last && last->rows < kAttentionRows && last->begin == next.begin && last->end == next.end &&
            last->causal == next.causal)
            last->rows++;
        else
            spans.push_back(next);
    }
    return spans;
}

// A pass under a full mask may be as long as a text: its rows share products with no more of them than those of a
// commit do. Who looks on wants to see a pass whole.
std::vector<Chunk> chunks_of(const Pass &p, const BlockGrid &grid) {
    const bool whole = !p.model.spec.full_mask() || p.model.observer;
    const int most = whole ? p.total : Model::kChunkRows;
    std::vector<Chunk> chunks;
    for (int row = 0; row < p.total; row += most) {
        const int rows = std::min(most, p.total - row);
        chunks.push_back({row, rows, spans_of(p, grid, row, rows)});
    }
    return chunks;
}

// Rows of a commit that no later pass computes again: under a block mask those of whole blocks.
int settled_rows(const Pass &p, const BlockGrid &grid) {
    if (!p.model.spec.sees_ahead())
        return p.committed;
    return int(std::max<int64_t>(0, grid.begin(p.start + p.committed) - p.start));
}

} // namespace

Pass::Pass(Model &model, State &state, const int *commit, int commit_rows, const std::vector<int> &block_ids,
           const PreviewOptions &options, const BlockGrid &grid)
    : model(model), state(state), ids(commit, commit + commit_rows), place(size_t(commit_rows)), start(state.settled()),
      committed(commit_rows), block_rows(int(block_ids.size())), block(options.block), words(options.words),
      soft(options.soft), coreset(options.coreset), coreset_share(options.coreset_share),
      history_width(options.width ? options.width : block_rows) {
    std::iota(place.begin(), place.end(), 0);
    for (int i = 0, n = int(options.rows ? options.rows->size() : block_ids.size()); i < n; i++) {
        const int row = options.rows ? (*options.rows)[size_t(i)] : i;
        ids.push_back(block_ids[size_t(row)]);
        place.push_back(committed + row);
    }
    total = int(ids.size());
    chunks = chunks_of(*this, grid);
    take(chunks[0]);
    settled = settled_rows(*this, grid);
}

DeltaRecord *Pass::record(int i) const {
    return committed && state.rollback.rows > 0 ? &state.rollback.delta[size_t(i)] : nullptr;
}

const float *Pass::angles(int layer) const {
    const int64_t row = row0, dim = model.spec.rotary_dim;
    return model.scratch.rope.data() +
           (model.spec.local_rope(layer) ? total * dim + row * model.spec.local_rotary_dim() : row * dim);
}

void Pass::multiply(const std::vector<Product> &products) {
    for (const Product &product : products)
        model.counters.bytes_read += matrix_bytes(product.w);
    clover::multiply(model.kernels, model.pool, products);
}

void normalise(Pass &p, const float *norm, Forms forms) {
    p.model.pool.run(p.rows, [&](int64_t r, int) { normalise_row(p, r, norm, forms); });
}

void norm_output(Pass &p, const float *norm) {
    if (!norm)
        return;
    Model &m = p.model;
    const int width = m.spec.hidden_size;
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *y = p.y() + r * width;
        m.kernels.rmsnorm(y, width, norm, m.spec.norm_offset, m.spec.rms_eps, 1, width, y, width);
    });
}

void mixer_inputs(Pass &p, int layer) {
    if (p.layer(layer).kind == LayerKind::attention)
        attention_inputs(p, layer);
}

void mixer(Pass &p, int layer) {
    p.layer(layer).kind == LayerKind::attention ? attention_layer(p, layer) : delta_layer(p, layer);
    norm_output(p, p.layer(layer).post_norm1);
}

void feed_forward(Pass &p, int layer) {
    const LayerWeights &w = p.layer(layer);
    if (w.has_dense() && w.has_experts())
        dense_beside_experts(p, layer);
    else
        w.has_experts() ? sparse_experts(p, layer) : dense_feed_forward(p, layer);
    norm_output(p, w.post_norm2);
}

void set_angles(Pass &p) {
    float *rope = p.model.scratch.rope.data();
    rotary_angles(p, p.model.inv_freq, p.model.spec.rope_attention_factor, rope);
    rotary_angles(p, p.model.local_inv_freq, 1, rope + int64_t(p.total) * p.model.spec.rotary_dim);
}

void forward(Pass &p) {
    if (p.model.executor)
        return execute(p);
    p.state.reserve_kept(p.committed);
    p.each_chunk([&] { embed(p); });
    if (p.block_rows && p.model.spec.self_conditioning_intermediate)
        condition(p);
    set_angles(p);
    const int layers = int(p.model.spec.layers.size());
    for (int i = 0; i < layers; i++) {
        const LayerWeights &w = p.layer(i);
        p.each_chunk([&] {
            next_input(p, 2 * i, w.norm1, mixer_forms(w));
            mixer_inputs(p, i);
        });
        p.each_chunk([&] {
            mixer(p, i);
            observe(p, i, Half::mixer);
            next_input(p, 2 * i + 1, w.norm2, w.has_dense() ? dense_forms(w) : expert_forms(w));
            feed_forward(p, i);
            observe(p, i, Half::feed_forward);
        });
    }
    finish(p);
    p.model.counters.rows += p.total;
}

} // namespace clover

// Sparse experts: router, grouping of rows by expert, SwiGLU experts, shared expert behind a sigmoid gate.
// E experts of width I, n rows, k = top_k; a pair is one (row, expert) choice.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/forward.h"

namespace clover {
namespace {

void softmax(float *x, int n) {
    const float top = *std::max_element(x, x + n);
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] = std::exp(x[i] - top);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

// ids of the k largest p, best first, ties to the lower id; `allowed` null: all take part
void select_top(const float *p, const char *allowed, int experts, int k, int *ids) {
    int n = 0;
    for (int e = 0; e < experts; e++) {
        if ((allowed && !allowed[e]) || (n == k && !(p[e] > p[ids[k - 1]])))
            continue;
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && p[e] > p[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = e;
    }
}

// router [n, E] of one row: logits to probabilities, and for a sigmoid router_choice [n, E]: with the bias, and nothing
// outside the best groups if it is `grouped`
void score_experts(const Spec &spec, Scratch &s, const float *bias, bool grouped, int64_t row) {
    const int experts = spec.num_experts, group = experts / spec.n_group;
    float *p = s.router.data() + row * experts, *choice = s.router_choice.data() + row * experts;
    for (int e = 0; spec.router_logit_scale != 1 && e < experts; e++)
        p[e] *= spec.router_logit_scale;
    if (spec.router == "softmax")
        return softmax(p, experts);
    for (int e = 0; e < experts; e++) {
        p[e] = 1.0f / (1.0f + std::exp(-p[e]));
        choice[e] = p[e] + (bias ? bias[e] : 0.0f);
    }
    if (!grouped || spec.topk_group == spec.n_group)
        return;
    std::vector<float> best(size_t(spec.n_group)); // by group, the sum of its two best
    std::vector<int> kept(size_t(spec.topk_group));
    for (int g = 0; g < spec.n_group; g++) {
        int two[2];
        select_top(choice + g * group, nullptr, group, 2, two);
        best[size_t(g)] = choice[g * group + two[0]] + choice[g * group + two[1]];
    }
    select_top(best.data(), nullptr, spec.n_group, spec.topk_group, kept.data());
    for (int g = 0; g < spec.n_group; g++)
        if (std::find(kept.begin(), kept.end(), g) == kept.end())
            std::fill_n(choice + g * group, group, -std::numeric_limits<float>::infinity());
}

// router [n, E], shared_gate [n, 1], gate_up [n, gate | up] <- x; x is first made anew of the residual where the
// router, or the experts beside a dense feed-forward, have a norm of their own
void project(Pass &p, const LayerWeights &layer) {
    const Spec &s = p.model.spec;
    const MoeWeights &w = layer.moe;
    Scratch &to = p.model.scratch;
    std::vector<Product> products = {
        {w.router, to.x.activations(w.router, 0, p.rows), nullptr, p.rows, to.router.data(), s.num_experts}};
    if (w.router_norm) {
        normalise(p, w.router_norm, 0);
        p.multiply(products);
        products.clear();
    }
    if (w.router_norm || layer.expert_norm)
        normalise(p, layer.expert_norm ? layer.expert_norm : layer.norm2, expert_forms(layer));
    if (s.shared_intermediate) {
        if (s.shared_gate)
            products.push_back(
                {w.shared_gate, to.x.activations(w.shared_gate, 0, p.rows), nullptr, p.rows, to.shared_gate.data(), 1});
        products.push_back({w.shared_gate_up, to.x.activations(w.shared_gate_up, 0, p.rows), nullptr, p.rows,
                            to.gate_up.data(), w.shared_gate_up.n});
    }
    if (!products.empty())
        p.multiply(products);
}

// [n, E] what experts are chosen by
const float *choices(const Spec &spec, const Scratch &s) {
    return spec.router == "softmax" ? s.router.data() : s.router_choice.data();
}

// set [E] <- `size` experts of `within` (null: all): e counts with the best that any row of the block says of it.
void choose_set(const Pass &p, const char *within, int size, std::vector<char> &set) {
    const int experts = p.model.spec.num_experts;
    const float *choice = choices(p.model.spec, p.model.scratch) + int64_t(p.committed) * experts;
    std::vector<float> best(choice, choice + experts);
    for (int r = 1; r < p.previewed(); r++)
        for (int e = 0; e < experts; e++)
            best[size_t(e)] = std::max(best[size_t(e)], choice[int64_t(r) * experts + e]);
    std::vector<int> ids(static_cast<size_t>(size));
    select_top(best.data(), within, experts, size, ids.data());
    set.assign(size_t(experts), char(0));
    for (int id : ids)
        set[size_t(id)] = 1;
}

// [E] experts of `within` (null: all) that the block's rows would choose.
std::vector<char> chosen_of(const Pass &p, const char *within) {
    const int experts = p.model.spec.num_experts, k = p.model.spec.top_k;
    const float *choice = choices(p.model.spec, p.model.scratch) + int64_t(p.committed) * experts;
    std::vector<char> chosen(size_t(experts), char(0));
    std::vector<int> top(static_cast<size_t>(k));
    for (int r = 0; r < p.previewed(); r++) {
        select_top(choice + int64_t(r) * experts, within, experts, k, top.data());
        for (int e : top)
            chosen[size_t(e)] = 1;
    }
    return chosen;
}

// [E] experts that the block's rows may use, null: all. The coreset is the block's own once its first preview has
// chosen it; the share is of every pass anew, since masks that are all alike choose few.
const char *allowed_experts(Pass &p, int layer) {
    const Spec &spec = p.model.spec;
    Scratch &s = p.model.scratch;
    const char *coreset = nullptr;
    if (p.has_coreset()) {
        std::vector<char> &set = p.block ? p.block->coreset[size_t(layer)] : s.coreset;
        if (!p.block || set.empty())
            choose_set(p, nullptr, p.coreset, set);
        coreset = set.data();
    }
    if (p.coreset_share == 0)
        return coreset;
    const std::vector<char> chosen = chosen_of(p, coreset);
    const int size = int(std::ceil(p.coreset_share * double(std::count(chosen.begin(), chosen.end(), char(1)))));
    choose_set(p, chosen.data(), std::max(spec.top_k, size), s.allowed);
    return s.allowed.data();
}

// top_id, top_weight [n, k] of one row
void choose_experts(const Spec &spec, Scratch &s, const MoeWeights &w, const char *allowed, int64_t row) {
    const float *p = s.router.data() + row * spec.num_experts;
    int *ids = s.top_id.data() + row * spec.top_k;
    float *weights = s.top_weight.data() + row * spec.top_k;
    select_top(choices(spec, s) + row * spec.num_experts, allowed, spec.num_experts, spec.top_k, ids);
    float sum = 0;
    for (int j = 0; j < spec.top_k; j++)
        sum += weights[j] = p[ids[j]];
    for (int j = 0; spec.norm_topk && j < spec.top_k; j++)
        weights[j] /= sum + 1e-20f; // sigmoids may all be nothing
    for (int j = 0; j < spec.top_k; j++)
        weights[j] *= spec.routed_scaling_factor * (w.scales ? w.scales[ids[j]] : 1.0f);
}

// Probabilities and choices of every row; beside them the shared expert's silu(gate) * up and its codes. A coreset and
// a share of it restrict the rows of a preview; a coreset takes the place of groups.
void choose(Pass &p, const MoeWeights &w, int layer) {
    Model &m = p.model;
    const Spec &s = m.spec;
    const bool shared = s.shared_intermediate > 0;
    m.scratch.inner.shape(s.shared_intermediate);
    const int free = p.has_coreset() || p.coreset_share > 0 ? p.committed : p.rows; // rows without a limit
    m.pool.run(p.rows, [&](int64_t r, int) {
        score_experts(s, m.scratch, w.router_bias, r < p.committed || !p.has_coreset(), r);
        if (r < free)
            choose_experts(s, m.scratch, w, nullptr, r);
        if (shared)
            gate_row(m, r, form_of(w.shared_down));
    });
    if (free == p.rows)
        return;
    const char *allowed = allowed_experts(p, layer);
    m.pool.run(p.rows - free, [&](int64_t r, int) { choose_experts(s, m.scratch, w, allowed, free + r); });
}

// calls, pair_row, pair_of <- pairs grouped by expert, rows in order within one
void group_by_expert(Pass &p, const MoeWeights &w) {
    Scratch &s = p.model.scratch;
    const int pairs = p.rows * p.model.spec.top_k, experts = p.model.spec.num_experts;
    std::vector<int> next(size_t(experts) + 1, 0);
    for (int i = 0; i < pairs; i++)
        next[size_t(s.top_id.data()[i]) + 1]++;
    s.calls.clear();
    for (int e = 0; e < experts; e++) {
        const int rows = next[size_t(e) + 1];
        next[size_t(e) + 1] += next[size_t(e)]; // now the end of e, and the place where e + 1 begins
        if (rows)
            s.calls.push_back({e, next[size_t(e)], rows});
    }
    for (int i = 0; i < pairs; i++) {
        const int place = next[size_t(s.top_id.data()[i])]++;
        s.pair_of.data()[i] = place;
        s.pair_row.data()[place] = i / p.model.spec.top_k;
    }
    const int64_t touched = int64_t(s.calls.size());
    p.model.counters.experts_touched += touched;
    p.model.counters.bytes_read +=
        touched * (matrix_bytes(w.gate.first) + matrix_bytes(w.up.first) + matrix_bytes(w.down.first));
}

// Chosen experts that may be on disk are asked for together: one by one each would wait for the disk.
void ask_for_experts(Pass &p, const MoeWeights &w, int layer) {
    Model &m = p.model;
    for (const ExpertCall &call : m.scratch.calls) {
        char &asked = m.asked[size_t(layer) * size_t(m.spec.num_experts) + size_t(call.expert)];
        if (asked && !m.read_ahead)
            continue;
        asked = 1;
        for (const ExpertPart *part : {&w.gate, &w.up, &w.down})
            m.weights.will_need(part->at(call.expert));
    }
}

// expert [pairs, I] <- silu(gate(x)) * up(x) and its codes, for one expert's rows and a range of tiles
void hidden_piece(Pass &p, const MoeWeights &w, const ExpertCall &call, int tile0, int tile1) {
    Model &m = p.model;
    Scratch &s = m.scratch;
    const int width = m.spec.expert_intermediate;
    const int64_t first = int64_t(call.first) * width;
    const Matrix gate = w.gate.at(call.expert), up = w.up.at(call.expert);
    const int *rows = s.pair_row.data() + call.first;
    m.kernels.matmul(
        call_of({gate, s.x.activations(gate, 0, p.rows), rows, call.rows, s.gate.data() + first, width}, tile0, tile1));
    m.kernels.matmul(
        call_of({up, s.x.activations(up, 0, p.rows), rows, call.rows, s.up.data() + first, width}, tile0, tile1));
    const int c0 = tile0 * kTileRows, c1 = std::min(tile1 * kTileRows, width);
    activate(m, s.gate.data() + first + c0, s.up.data() + first + c0, width, call.rows, c1 - c0,
             s.expert.row(call.first) + c0);
    for (int r = 0; r < call.rows; r++)
        s.expert.quantize(m.kernels, form_of(w.down.first), call.first + r, c0, c1);
}

// pair_out [pairs, H] of one expert's rows
Product down_of(Pass &p, const MoeWeights &w, const ExpertCall &call) {
    Scratch &s = p.model.scratch;
    const int64_t hidden = p.model.spec.hidden_size;
    const Matrix down = w.down.at(call.expert);
    return {down,      s.expert.activations(down, call.first, call.rows), nullptr,
            call.rows, s.pair_out.data() + call.first * hidden,           hidden};
}

// shared_out [n, H]
Product shared_down_of(Pass &p, const MoeWeights &w) {
    Scratch &s = p.model.scratch;
    p.model.counters.bytes_read += matrix_bytes(w.shared_down);
    return {
        w.shared_down,           s.inner.activations(w.shared_down, 0, p.rows), nullptr, p.rows, s.shared_out.data(),
        p.model.spec.hidden_size};
}

// The first bytes of a record, which nothing has asked memory for yet. (Within one, the kernels look ahead.)
void fetch_start(const Matrix &w) {
    constexpr int64_t tiles = 4, bytes = 1024;
    const int64_t tile = matrix_bytes(w) / tiles_of(w.n);
    for (int64_t t = 0; t < std::min<int64_t>(tiles, tiles_of(w.n)); t++)
        for (int64_t at = 0; at < std::min(bytes, tile); at += 64)
            __builtin_prefetch(static_cast<const uint8_t *>(w.data) + t * tile + at);
}

// Many experts: each whole, gate, up and down being one stretch of memory, the ones with most rows first; the
// shared expert's down projection fills the end.
void whole_experts(Pass &p, const MoeWeights &w) {
    Model &m = p.model;
    std::vector<ExpertCall> calls = m.scratch.calls;
    std::stable_sort(calls.begin(), calls.end(),
                     [](const ExpertCall &a, const ExpertCall &b) { return a.rows > b.rows; });
    std::vector<Product> shared;
    std::vector<Piece> pieces;
    if (m.spec.shared_intermediate) {
        shared.push_back(shared_down_of(p, w));
        cut({{tiles_of(w.shared_down.n), p.rows}}, 1, m.pool.size(), pieces);
    }
    const int tiles = tiles_of(m.spec.expert_intermediate);
    const int64_t experts = int64_t(calls.size());
    m.pool.run(experts + int64_t(pieces.size()), [&](int64_t i, int) {
        if (i >= experts) {
            const Piece &piece = pieces[size_t(i - experts)];
            m.kernels.matmul(call_of(shared[0], piece.tile0, piece.tile1));
            return;
        }
        hidden_piece(p, w, calls[size_t(i)], 0, tiles);
        const int64_t next = i + m.pool.size(); // most likely this thread's
        if (next < experts)
            fetch_start(w.gate.at(calls[size_t(next)].expert));
        const Product down = down_of(p, w, calls[size_t(i)]);
        m.kernels.matmul(call_of(down, 0, tiles_of(down.w.n)));
    });
}

// Few experts: cut into pieces, so that all threads have their share.
void cut_experts(Pass &p, const MoeWeights &w) {
    Model &m = p.model;
    const int width = m.spec.expert_intermediate;
    std::vector<Work> work;
    std::vector<Piece> pieces;
    for (const ExpertCall &call : m.scratch.calls)
        work.push_back({tiles_of(width), call.rows});
    const int align = w.down.first.group ? block_of(width) / kTileRows : 1; // whole blocks of the codes
    cut(work, align, m.pool.size(), pieces);
    m.pool.run(int64_t(pieces.size()), [&](int64_t i, int) {
        const Piece &piece = pieces[size_t(i)];
        hidden_piece(p, w, m.scratch.calls[size_t(piece.call)], piece.tile0, piece.tile1);
    });
    std::vector<Product> products;
    for (const ExpertCall &call : m.scratch.calls)
        products.push_back(down_of(p, w, call));
    if (m.spec.shared_intermediate)
        products.push_back(shared_down_of(p, w));
    multiply(m.kernels, m.pool, products);
}

// Experts a thread should have at least, for all to finish together when experts are not cut.
constexpr int kExpertsPerThread = 8;

// y [n, H] <- weighted experts by rank, then the shared one: an order that no grouping changes
void combine(Pass &p) {
    Model &m = p.model;
    Scratch &s = m.scratch;
    const int64_t hidden = m.spec.hidden_size, k = m.spec.top_k;
    m.pool.run(p.rows, [&](int64_t r, int) {
        float *y = p.y() + r * hidden;
        std::fill_n(y, hidden, 0.0f);
        const auto add = [&](float weight, const float *row) {
            for (int64_t i = 0; i < hidden; i++)
                y[i] += weight * row[i];
        };
        for (int64_t j = r * k; j < (r + 1) * k; j++)
            add(s.top_weight.data()[j], s.pair_out.data() + s.pair_of.data()[j] * hidden);
        if (m.spec.shared_intermediate)
            add(m.spec.shared_gate ? 1.0f / (1.0f + std::exp(-s.shared_gate.data()[r])) : 1.0f,
                s.shared_out.data() + r * hidden);
    });
}

} // namespace

void sparse_experts(Pass &p, int layer) {
    const MoeWeights &w = p.layer(layer).moe;
    project(p, p.layer(layer));
    choose(p, w, layer);
    group_by_expert(p, w);
    ask_for_experts(p, w, layer);
    const bool whole = int(p.model.scratch.calls.size()) >= kExpertsPerThread * p.model.pool.size();
    whole ? whole_experts(p, w) : cut_experts(p, w);
    combine(p);
}

} // namespace clover

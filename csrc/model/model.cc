#include "model/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/forward.h"
#include "model/head.h"
#include "model/memory.h"

namespace clover {
namespace {

Spec checked(const Spec &spec) {
    validate(spec);
    return spec;
}

std::vector<double> powers(double theta, int rotary_dim) {
    std::vector<double> out(size_t(rotary_dim / 2));
    for (size_t i = 0; i < out.size(); i++)
        out[i] = std::pow(theta, -2.0 * double(i) / rotary_dim);
    return out;
}

std::vector<double> inverse_frequencies(const Spec &s) {
    if (!s.has(LayerKind::attention))
        return {};
    return s.rope_inv_freq.empty() ? powers(s.rope_theta, s.rotary_dim) : s.rope_inv_freq;
}

std::vector<double> local_frequencies(const Spec &s) {
    return s.rope_local_theta == 0 ? std::vector<double>() : powers(s.rope_local_theta, s.local_rotary_dim());
}

// The last row of `rows`, or all of them from `first` on.
std::vector<int> wanted_rows(Logits want, int first, int rows) {
    std::vector<int> out;
    for (int r = want == Logits::all ? first : rows - 1; r < rows; r++)
        out.push_back(r);
    return out;
}

// Rows of the next pass of a commit, from position `at` to `end`: whole blocks, where the mask has blocks.
int chunk_rows(const Spec &s, const BlockGrid &grid, int64_t at, int64_t end) {
    const int64_t limit = at + Model::kChunkRows;
    if (end <= limit || !s.block_mask())
        return int(std::min(end, limit) - at);
    const int64_t last = grid.begin(limit);
    return int(std::min(end, last > at ? last : grid.end(at)) - at);
}

// The state behind a pass of ids [n] from `start` on, whose last row's output is `last`.
void advance(const Spec &s, State &state, const BlockGrid &grid, int64_t start, const int *ids, int n,
             const float *last) {
    state.position = start + n;
    state.open.clear();
    state.previewed.clear();
    state.passes++;
    if (s.block_mask())
        state.open.assign(ids + std::max<int64_t>(0, grid.begin(state.position) - start), ids + n);
    std::copy_n(last, s.hidden_size, state.hidden.data());
    state.cut = false;
}

// One pass of a commit.
void commit_rows(Model &m, State &state, const int *ids, int rows, const BlockGrid &grid) {
    const int64_t width = m.spec.hidden_size;
    const float *h = m.scratch.h.data();
    Pass pass(m, state, ids, rows, {}, {}, grid);
    state.broken = true;
    forward(pass);
    advance(m.spec, state, grid, pass.start, ids, rows, h + (rows - 1) * width);
    if (state.rollback.rows)
        std::copy_n(h, rows * width, state.rollback.hidden.data() + width);
    state.broken = false;
    if (!state.rollback.rows) // else rows may be taken back, and a mark with them
        state.mark_if_due();
}

// Rows of the largest chunk of a pass over `total` rows.
int chunk_of(const Model &m, int total) {
    return m.spec.full_mask() && !m.observer ? std::min(total, Model::kChunkRows) : total;
}

// Room for what the previews of `rows` rows keep; nothing is kept yet.
void make_room(const Spec &s, Block &block, int rows) {
    block.clear();
    block.coreset.resize(s.layers.size());
    block.M.resize(s.layers.size());
    block.beta.resize(s.layers.size());
    for (size_t i = 0; i < s.layers.size(); i++)
        if (s.layers[i] == LayerKind::deltanet) {
            block.M[i].resize(int64_t(rows) * s.conv_channels());
            block.beta[i].resize(int64_t(rows) * s.delta_v_heads);
        }
    block.rows = rows;
}

// Copies of the ids of the open block, and of what follows.
std::vector<int> behind_open(const State &state, const std::vector<int> &ids) {
    std::vector<int> all = state.open;
    all.insert(all.end(), ids.begin(), ids.end());
    return all;
}

bool copy_weights(const std::vector<std::string> &files, const ModelOptions &options) {
    if (!options.mmap)
        require_memory("a copy of the weights (mmap=False)", file_bytes(files));
    return !options.mmap;
}

} // namespace

Model::Model(const Spec &s, const std::vector<std::string> &files, const std::vector<TensorRow> &table,
             const ModelOptions &options)
    : spec(checked(s)), executor(options.executor),
      weights(executor ? Weights{} : load_weights(spec, files, table, copy_weights(files, options))),
      kernels(clover::kernels(options.isa.empty() ? nullptr : options.isa.c_str())), pool(options.threads),
      scratch(spec, weights, pool.size()), delta_closed(options.delta_closed), kv_format(options.kv),
      read_ahead(options.read_ahead.value_or(options.mmap && weights.bytes > available_memory())),
      asked(spec.layers.size() * size_t(spec.num_experts)), inv_freq(inverse_frequencies(spec)),
      local_inv_freq(local_frequencies(spec)) {
    if (kv_format != KvFormat::f32)
        require_kernels("kv other than \"f32\"");
    if (spec.drafter())
        require_kernels("drafts_for_layers");
    if (spec.self_conditioning_intermediate)
        require_kernels("self_conditioning_intermediate");
    require_memory("the weights that every pass reads", weights.dense_bytes);
}

Model::Needs Model::needs(int64_t max_tokens) const {
    const int rows = spec.full_mask() ? int(max_tokens) : std::max(1, spec.block_size); // of a pass
    return {State::bytes(spec, kv_format, max_tokens), scratch.bytes(chunk_of(*this, rows), rows)};
}

void Model::check_capacity(int64_t least, int64_t max_tokens, int64_t held) const {
    if (max_tokens < least || max_tokens > spec.max_positions)
        throw ContextLengthError("a state for " + std::to_string(max_tokens) + " tokens: the model takes " +
                                 std::to_string(least) + " to " + std::to_string(spec.max_positions));
    const Needs bytes = needs(max_tokens);
    require_memory("a state for " + std::to_string(max_tokens) + " tokens and its working memory",
                   bytes.state + bytes.working - held);
}

State Model::new_state(int64_t max_tokens) const {
    check_capacity(1, max_tokens, 0);
    return State(spec, max_tokens, kv_format);
}

void Model::extend(State &state, int64_t max_tokens) const {
    check_capacity(std::max<int64_t>(1, state.position), max_tokens, state.bytes());
    state.capacity = max_tokens;
}

void Model::check_ids(const std::vector<int> &ids, bool mask_allowed) const {
    for (size_t i = 0; i < ids.size(); i++) {
        const std::string which = "token " + std::to_string(i) + " (id " + std::to_string(ids[i]) + ")";
        if (ids[i] < 0 || ids[i] >= spec.vocab_size)
            throw ArgumentError(which + " is outside the vocabulary of " + std::to_string(spec.vocab_size));
        if (!mask_allowed && ids[i] == spec.mask_token_id) // which is -1, no id at all, where there is none
            throw ArgumentError(which + " is the mask token, which a text may not contain");
    }
}

void Model::check_coreset(int coreset, double share) const {
    if (coreset != 0 && (coreset < spec.top_k || coreset > spec.num_experts))
        throw ArgumentError("coreset " + std::to_string(coreset) + " is neither 0 nor in [" +
                            std::to_string(spec.top_k) + ", " + std::to_string(spec.num_experts) + "]");
    if (!(share >= 0 && share <= 1))
        throw ArgumentError("coreset_share " + std::to_string(share) + " is outside [0, 1]");
    if (coreset || share > 0)
        require_kernels(coreset ? "coreset " + std::to_string(coreset) : "coreset_share");
    if ((coreset || share > 0) && spec.full_mask())
        throw UnsupportedModel("a coreset is not supported of mask \"full\"");
}

void Model::check_commit(const State &state, const std::vector<int> &ids) const {
    require_words();
    state.require_whole();
    check_ids(ids, false);
    const int64_t n = int64_t(ids.size());
    if (n == 0)
        throw ArgumentError("no token to commit");
    if (n > state.capacity - state.position)
        throw ContextLengthError(std::to_string(n) + " tokens behind position " + std::to_string(state.position) +
                                 " exceed the state's capacity of " + std::to_string(state.capacity));
}

void Model::commit(State &state, const std::vector<int> &ids, Logits want, bool rollback, float *logits,
                   const Tick &tick) {
    check_commit(state, ids);
    const int64_t n = int64_t(ids.size());
    if (rollback && n > kChunkRows)
        throw ArgumentError("a commit with rollback takes at most " + std::to_string(kChunkRows) + " tokens");
    if (rollback)
        require_kernels("rollback");
    if (rollback && spec.sees_ahead())
        throw UnsupportedModel("a commit with rollback is not supported of mask \"" + spec.mask + "\"");
    if (spec.full_mask())
        return commit_text(state, ids, want, logits, tick);
    const int64_t end = state.position + n, start = state.position - int64_t(state.open.size());
    const BlockGrid grid = grid_of(spec, end);
    const std::vector<int> all = behind_open(state, ids);
    if (want == Logits::none && state.previewed == all) { // a preview has computed all of it
        advance(spec, state, grid, start, all.data(), int(all.size()), state.previewed_hidden.data());
        state.mark_if_due();
        return;
    }
    int again = int(state.open.size()); // rows that the caller has seen before
    scratch.reserve(int(std::min<int64_t>(end - start, std::max(kChunkRows, spec.block_mask() ? spec.block_size : 0))));
    state.reserve(end);
    rollback ? state.begin_rollback(int(n)) : state.drop_rollback();
    for (int64_t at = start; at < end;) {
        tick();
        const int rows = chunk_rows(spec, grid, at, end);
        commit_rows(*this, state, all.data() + (at - start), rows, grid);
        at += rows;
        const int first = std::exchange(again, 0);
        if (want == Logits::none || (want == Logits::last && at < end))
            continue;
        const std::vector<int> which = wanted_rows(want, first, rows);
        head_logits(*this, scratch.h.data(), which, logits);
        logits += int64_t(which.size()) * spec.vocab_size;
    }
}

void Model::commit_text(State &state, const std::vector<int> &ids, Logits want, float *logits, const Tick &tick) {
    std::vector<int> text = behind_open(state, ids);
    if (want != Logits::none) {
        tick();
        run_preview(state, {}, text, {});
        head_logits(*this, scratch.h.data(), wanted_rows(want, int(state.open.size()), int(text.size())), logits);
    }
    state.position = int64_t(text.size());
    state.open = std::move(text);
}

void Model::require_preview() const {
    if (!spec.preview)
        throw UnsupportedModel("the model is autoregressive: it cannot denoise blocks");
}

void Model::require_words() const {
    if (spec.drafter())
        throw UnsupportedModel("the model is a drafter: it has no embedding and no head, and serves beside another");
}

void Model::check_preview(const State &state, const std::vector<int> &ids, const PreviewOptions &options) const {
    require_preview();
    if (!options.words)
        require_words();
    state.require_whole();
    check_ids(ids, true);
    check_coreset(options.coreset, options.coreset_share);
    const int64_t most = spec.full_mask() ? spec.max_positions : kMaxBlock;
    if (ids.empty() || int64_t(ids.size()) > most)
        throw ArgumentError("a block of " + std::to_string(ids.size()) + " tokens is outside [1, " +
                            std::to_string(most) + "]");
    if (spec.full_mask() && state.position + int64_t(ids.size()) > spec.max_positions)
        throw ContextLengthError("a canvas of " + std::to_string(ids.size()) + " behind position " +
                                 std::to_string(state.position) + ": the model takes " + std::to_string(most));
    if (options.width < 0)
        throw ArgumentError("width " + std::to_string(options.width) + " is negative");
    if (!options.rows)
        return;
    require_kernels("rows left out");
    if (spec.has(LayerKind::deltanet) && spec.causal_delta())
        throw UnsupportedModel("rows cannot be left out of a recurrence over the block");
    if (spec.self_conditioning_intermediate)
        throw UnsupportedModel("rows cannot be left out of a canvas that is drawn anew");
    const int n = int(state.open.size() + ids.size());
    if (!options.block || options.block->rows != n || options.block->pass != state.passes)
        throw ArgumentError("rows are left out, and no preview of the same block has just computed them");
    int before = -1;
    for (int row : *options.rows) {
        if (row <= before || row >= n)
            throw ArgumentError("row " + std::to_string(row) + " does not ascend, or is outside the block of " +
                                std::to_string(n));
        before = row;
    }
    if (before < 0)
        throw ArgumentError("no row to compute");
}

void Model::preview(State &state, const std::vector<int> &ids, const PreviewOptions &options) {
    check_preview(state, ids, options);
    run_preview(state, {}, behind_open(state, ids), options);
}

int Model::commit_and_preview(State &state, const std::vector<int> &ids, const std::vector<int> &block,
                              const PreviewOptions &options) {
    check_commit(state, ids);
    check_preview(state, block, options);
    if (ids.size() > size_t(kMaxBlock))
        throw ArgumentError("a commit of " + std::to_string(ids.size()) + " tokens in the pass of a preview is above " +
                            std::to_string(kMaxBlock));
    if (spec.self_conditioning_intermediate)
        throw UnsupportedModel("a model with self-conditioning commits in passes of their own");
    if (spec.full_mask())
        throw UnsupportedModel("under mask \"full\" a commit takes no pass");
    if (options.rows)
        throw ArgumentError("the first preview of a block leaves no row out");
    const int64_t end = state.position + int64_t(ids.size());
    if (spec.block_mask() && grid_of(spec, end).begin(end) != end)
        throw ArgumentError("the commit in the pass of a preview does not end a block");
    state.drop_rollback();
    if (state.previewed == behind_open(state, ids)) { // computed already
        commit(state, ids, Logits::none, false, nullptr, [] {});
        return run_preview(state, {}, block, options);
    }
    return run_preview(state, behind_open(state, ids), block, options);
}

// A commit of `ids` [may be none], those of the open block in front, and a preview of `block`, likewise.
int Model::run_preview(State &state, const std::vector<int> &ids, const std::vector<int> &block,
                       const PreviewOptions &options) {
    const int committed = int(ids.size()), n = int(block.size());
    const int64_t width = spec.hidden_size, behind = state.position - int64_t(state.open.size()) + committed + n;
    const int total = committed + (options.rows ? int(options.rows->size()) : n);
    scratch.reserve(chunk_of(*this, total), total);
    state.reserve(behind);
    if (options.block && options.block->rows != n)
        make_room(spec, *options.block, n);
    const BlockGrid grid = grid_of(spec, committed ? behind - n : state.position);
    Pass pass(*this, state, ids.data(), committed, block, options, grid);
    state.previewed.clear();
    state.broken = committed > 0;
    forward(pass);
    const float *h = scratch.h.data();
    if (committed)
        advance(spec, state, grid, pass.start, ids.data(), committed, h + (committed - 1) * width);
    state.broken = false;
    state.mark_if_due();
    state.passes++;
    if (options.block)
        options.block->pass = state.passes;
    // It has left all that a commit would: keys and values, which recurrent layers do not have.
    if (spec.block_mask() && !spec.has(LayerKind::deltanet) && !options.coreset && options.coreset_share == 0 &&
        !options.rows && n <= spec.block_size) {
        state.previewed = block;
        std::copy_n(h + int64_t(pass.total - 1) * width, width, state.previewed_hidden.data());
    }
    return committed;
}

void Model::truncate(State &state, int64_t position) {
    if (position == 0) {
        state.reset();
        return;
    }
    state.require_whole();
    if (position == state.position) {
        state.mark_if_due();
        return;
    }
    if (spec.full_mask() && position > 0 && position < state.position) {
        state.open.resize(size_t(position));
        state.position = position;
        return;
    }
    Rollback &record = state.rollback;
    const int64_t keep = position - record.start;
    if (keep < 0 || keep > record.rows || record.rows == 0)
        throw ArgumentError("position " + std::to_string(position) +
                            " is neither 0 nor within the last commit made with "
                            "rollback");
    state.broken = true;
    replay_delta(*this, state, int(keep));
    std::copy_n(record.hidden.data() + keep * spec.hidden_size, spec.hidden_size, state.hidden.data());
    record.rows = int(keep);
    state.cut = keep == 0 && record.cut;
    state.position = position;
    state.broken = false;
    state.drop_marks_behind(position);
    state.mark_if_due();
}

void Model::rewind(State &state, int64_t position) {
    if (position < 0)
        throw ArgumentError("position " + std::to_string(position) + " is negative");
    const Rollback &record = state.rollback;
    const bool recorded = record.rows && position >= record.start && position <= record.start + record.rows;
    if (recorded && !state.broken && position < state.position)
        return truncate(state, position);
    state.rewind(position);
}

void Model::last_logits(const State &state, float *logits) {
    require_words();
    state.require_whole();
    if (!state.decided())
        throw ArgumentError("the last token's output is not known: the state was cut behind it");
    if (spec.full_mask())
        throw UnsupportedModel("under mask \"full\" the last row's logits depend on what follows it");
    head_logits(*this, state.hidden.data(), {0}, logits);
}

} // namespace clover

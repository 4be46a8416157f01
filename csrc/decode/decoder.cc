#include "decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/self_conditioning.h"

namespace clover {
namespace {

constexpr double kLarge = 1e9;
constexpr int kMostLogProbs = 20;

Counters difference(const Counters &a, const Counters &b) {
    return {a.rows - b.rows, a.experts_touched - b.experts_touched, a.bytes_read - b.bytes_read};
}

DecodeMode default_mode(const Model &model, const DraftModel *drafter) {
    if (drafter)
        return DecodeMode::speculative;
    return model.spec.preview ? DecodeMode::diffusion : DecodeMode::autoregressive;
}

// Adds to the penalties, which are in the order of their ids.
void penalise(std::vector<HeadRule::Penalty> &penalties, const std::vector<int> &ids, double subtract) {
    for (int id : ids) {
        auto at = std::lower_bound(penalties.begin(), penalties.end(), id,
                                   [](const HeadRule::Penalty &p, int wanted) { return p.id < wanted; });
        if (at == penalties.end() || at->id != id)
            at = penalties.insert(at, {id, 0});
        at->subtract += float(subtract);
    }
}

} // namespace

void check_range(const char *name, double value, double low, double high) {
    if (!(value >= low && value <= high)) // also refuses NaN
        throw ArgumentError(std::string(name) + " " + std::to_string(value) + " is outside [" + std::to_string(low) +
                            ", " + std::to_string(high) + "]");
}

Decoder::Decoder(Model &model, State &state, const DecodeOptions &options, const Listener &listener, const Tick &tick,
                 const DraftModel *drafter, Constraint *constraint)
    : m_(model), state_(state), external_(drafter), constraint_(constraint), o_(options),
      mode_(options.mode.value_or(default_mode(model, drafter))), listener_(listener), tick_(tick),
      credit_(options.credit) {
    if (o_.block_length == 0)
        o_.block_length = (drafter ? drafter->model : model).spec.block_size;
    if (o_.coreset < 0)
        o_.coreset = m_.spec.coreset_size;
    if (o_.fixed_schedule)
        o_.policy.schedule_width = o_.block_length;
}

void Decoder::check_blocks(bool empty) const {
    m_.require_preview();
    check_range("block_length", o_.block_length, 1, m_.spec.full_mask() ? kLarge : Model::kMaxBlock);
    if (m_.spec.block_mask() && o_.block_length != m_.spec.block_size)
        throw ArgumentError("block_length " + std::to_string(o_.block_length) + " is not the model's " +
                            std::to_string(m_.spec.block_size) + ", which its mask asks for");
    check_range("edit_threshold", o_.editing.threshold, -1, kLarge);
    check_range("max_post_steps", o_.editing.max_post_steps, 0, kLarge);
    check_range("sub_block", o_.sub_block, 0, o_.block_length);
    if (o_.sub_block && (o_.policy.steps || o_.editing.on()))
        throw ArgumentError("sub_block is not supported together with steps or edit_threshold");
    check_range("credit", o_.credit, 0, kLarge);
    if (o_.credit > 0 && (o_.sampling.temperature > 0 || o_.editing.on() || o_.strategy.needs_entropy()))
        throw ArgumentError("credit is not supported together with temperature, edit_threshold or entropy_bounded");
    check_range("factor", o_.strategy.factor, 0, kLarge);
    check_range("entropy_bound", o_.strategy.entropy_bound, 0, kLarge);
    if (o_.strategy.factor > 0 && o_.strategy.strategy != Strategy::low_confidence_dynamic)
        throw ArgumentError("factor is not supported of a strategy other than low_confidence_dynamic");
    if (!o_.strategy.plain() && o_.editing.on())
        throw ArgumentError("strategy and factor are not supported together with edit_threshold");
    if (o_.skip_rows)
        m_.require_kernels("skip_rows");
    if (o_.skip_rows && o_.editing.on())
        throw ArgumentError("skip_rows is not supported together with edit_threshold, which looks at all rows");
    if (o_.skip_rows && m_.spec.has(LayerKind::deltanet) && m_.spec.causal_delta())
        throw UnsupportedModel("skip_rows: rows cannot be left out of a recurrence over the block");
    check_range("refresh", o_.refresh, 0, kLarge);
    if (m_.spec.uniform_noise())
        check_canvases();
    if (m_.spec.inserts())
        check_indel();
    if (empty && m_.spec.row_before_decides())
        throw ArgumentError("the first token comes from the logits of the one before it: the prompt is empty");
}

void Decoder::check_drafter(int64_t tokens) const {
    if (mode_ != DecodeMode::speculative)
        throw ArgumentError("a drafter serves mode speculative alone");
    external_->model.check_drafts_for(m_);
    check_range("block_length", o_.block_length, 1, external_->model.spec.block_size);
    const State &context = external_->state;
    if (context.position != state_.position)
        throw ArgumentError("the drafter's state is at position " + std::to_string(context.position) +
                            ", the model's at " + std::to_string(state_.position));
    if (tokens > context.capacity - context.position)
        throw ContextLengthError(std::to_string(tokens) + " tokens exceed the capacity of the drafter's state, " +
                                 std::to_string(context.capacity));
}

void Decoder::check(const std::vector<int> &prompt) const {
    const SamplingOptions &s = o_.sampling;
    m_.require_words();
    if (mode_ == DecodeMode::speculative)
        m_.require_kernels("mode speculative");
    check_range("max_new_tokens", double(o_.max_new_tokens), 0, kLarge);
    const bool empty = prompt.empty() && !state_.decided(); // nothing decides a first token
    if (mode_ != DecodeMode::diffusion && m_.spec.uniform_noise())
        throw UnsupportedModel("the model was trained to denoise blocks of random ids: it does not decode "
                               "autoregressively");
    if (external_)
        check_drafter(int64_t(prompt.size()) + o_.max_new_tokens);
    else if (mode_ != DecodeMode::autoregressive)
        check_blocks(empty);
    check_unmasking();
    check_constraint();
    if (mode_ != DecodeMode::diffusion && m_.spec.sees_ahead())
        throw UnsupportedModel("the model sees blocks as a whole: it cannot decode autoregressively");
    if (mode_ == DecodeMode::speculative)
        check_range("block_length of a draft", o_.block_length, 1, Model::kChunkRows);
    check_range("threshold", o_.policy.threshold, 0, kLarge);
    check_range("steps", o_.policy.steps, 0, kLarge);
    check_range("temperature", s.temperature, 0, kLarge);
    check_range("top_k", s.top_k, 0, kLarge);
    check_range("top_p", s.top_p, 0, 1);
    check_range("presence_penalty", s.presence_penalty, -kLarge, kLarge);
    check_range("frequency_penalty", s.frequency_penalty, -kLarge, kLarge);
    check_range("logprobs", o_.logprobs, -1, kMostLogProbs);
    check_range("repetition_penalty", s.repetition_penalty, 1e-6, kLarge);
    m_.check_coreset(o_.coreset, o_.coreset_share);
    m_.check_ids(prompt, false);
    for (int id : o_.stop_ids)
        check_range("stop id", id, 0, m_.spec.vocab_size - 1);
    if (empty && mode_ != DecodeMode::diffusion)
        throw ArgumentError("autoregressive decoding needs a prompt");
    const int64_t tokens = int64_t(prompt.size()) + o_.max_new_tokens;
    check_range("mark", double(o_.mark), 0, double(state_.position + int64_t(prompt.size())));
    if (tokens > state_.capacity - state_.position)
        throw ContextLengthError(std::to_string(prompt.size()) + " prompt tokens and max_new_tokens " +
                                 std::to_string(o_.max_new_tokens) + " behind position " +
                                 std::to_string(state_.position) + " exceed the capacity of " +
                                 std::to_string(state_.capacity) + " tokens");
}

// Everything that the call will need, so that it fails before any work or not at all.
void Decoder::reserve(int64_t prompt_tokens) {
    if (m_.spec.full_mask()) {
        const int64_t all = state_.position + prompt_tokens + o_.max_new_tokens;
        m_.scratch.reserve(int(std::min<int64_t>(all, Model::kChunkRows)), int(all));
        return state_.reserve(all);
    }
    const int64_t width = mode_ == DecodeMode::autoregressive ? 1 : o_.block_length;
    const int64_t run = constraint_ ? o_.max_new_tokens : 0; // of forced tokens, in one pass
    const int64_t rows =
        std::max((1 + fuses()) * width, std::min<int64_t>(std::max(prompt_tokens, run), Model::kChunkRows));
    m_.scratch.reserve(int(rows));
    const int64_t blocks = (o_.max_new_tokens + width - 1) / width;
    state_.reserve(state_.position + prompt_tokens + (blocks + m_.spec.block_mask()) * width); // the first may be short
    if (external_) {
        external_->model.scratch.reserve(int(rows));
        external_->state.reserve(state_.position + prompt_tokens + blocks * width);
    }
}

size_t Decoder::piece(size_t left) const {
    const int64_t to_mark = o_.mark - state_.position;
    size_t most = left;
    if (drafter_) // follows pass by pass
        most = Model::kChunkRows;
    else if (listener_ && !m_.spec.full_mask() && !m_.spec.blocks_from_ends()) {
        // Whole passes, so that the listener can cancel between them; the state is the same.
        const int64_t width = m_.spec.block_mask() ? m_.spec.block_size : 1;
        const int64_t end = (state_.position + Model::kChunkRows) / width * width;
        most = size_t(end > state_.position ? end - state_.position : width - state_.position % width);
    }
    return std::min(
        {left, most, to_mark > 0 && !state_.cuttable() && !m_.spec.blocks_from_ends() ? size_t(to_mark) : left});
}

void Decoder::prefill(const std::vector<int> &prompt) {
    for (size_t at = 0, n = 0; at < prompt.size() && !done(); at += n) {
        n = piece(prompt.size() - at);
        const auto begin = prompt.begin() + std::ptrdiff_t(at);
        m_.commit(state_, {begin, begin + std::ptrdiff_t(n)}, Logits::none, false, nullptr, tick_);
        if (drafter_)
            drafter_->follow(int(n));
        if (state_.position == o_.mark)
            state_.mark(true);
        if (!m_.spec.full_mask())
            result_.counters.prefill_passes += (int64_t(n) + Model::kChunkRows - 1) / Model::kChunkRows;
        result_.counters.prefill_seconds = seconds();
        Event event(Event::Type::prefill);
        event.tokens = int64_t(at + n);
        notify(event);
    }
}

DecodeResult Decoder::run(const std::vector<int> &prompt) {
    check(prompt);
    reserve(int64_t(prompt.size()));
    if (external_)
        drafter_ = std::make_unique<ContextDrafter>(m_, state_, *external_);
    else if (mode_ == DecodeMode::speculative)
        drafter_ = std::make_unique<OwnPreviews>(m_, state_, o_.coreset);
    prefill(prompt);
    const Counters before = m_.counters, drafter_before = external_ ? external_->model.counters : Counters();
    if (!done() && o_.max_new_tokens == 0)
        result_.finish = Finish::length;
    if (!done() && mode_ == DecodeMode::autoregressive)
        decode_tokens();
    else if (!done() && mode_ == DecodeMode::speculative)
        decode_speculatively();
    else if (!done() && m_.spec.full_mask())
        decode_masks();
    else if (!done())
        m_.spec.uniform_noise() ? decode_canvases() : decode_blocks();
    result_.counters.work = difference(m_.counters, before);
    if (external_)
        result_.counters.drafter_work = difference(external_->model.counters, drafter_before);
    result_.counters.decode_seconds = seconds() - result_.counters.prefill_seconds;
    return std::move(result_);
}

HeadRule Decoder::rule(std::vector<HeadRule::Penalty> &penalties) const {
    HeadRule rule = head_rule(o_.sampling, seen_, penalties);
    if (o_.stop_penalty != 0)
        penalise(penalties, o_.stop_ids, o_.stop_penalty);
    rule.penalties = penalties.data();
    rule.penalty_count = int(penalties.size());
    return rule;
}

std::vector<Pick> Decoder::pick_rows(const float *hidden, const std::vector<int> &rows,
                                     const std::vector<int64_t> &positions, int step, std::vector<double> *entropy) {
    std::vector<HeadRule::Penalty> penalties;
    HeadPass &head = last_.emplace(Looked{hidden, rows, head_pass(m_, hidden, rows, rule(penalties))}).head;
    if (credit_.on() && mode_ == DecodeMode::diffusion)
        return credit_.pick(head, positions);
    std::vector<double> u;
    for (int64_t position : positions)
        u.push_back(uniform(o_.sampling.seed, position, step));
    std::vector<Pick> picks = pick(head, o_.sampling, u);
    if (entropy)
        *entropy = soften(m_, head, nullptr);
    return picks;
}

Decoder::Cut Decoder::cut(const std::vector<int> &tokens) {
    const int64_t limit = std::min<int64_t>(int64_t(tokens.size()), budget());
    for (int64_t i = 0; i < limit; i++)
        if (is_stop(tokens[size_t(i)])) {
            result_.stop_id = tokens[size_t(i)];
            return {i, Finish::stop};
        }
    return {limit, limit == budget() ? Finish::length : Finish::none};
}

void Decoder::add_text(std::vector<int> &tokens) {
    const Cut c = cut(tokens);
    Event event(Event::Type::block);
    event.block = int(result_.counters.blocks++);
    event.ids.assign(tokens.begin(), tokens.begin() + c.kept);
    event.finish = c.finish;
    event.logprobs = take_noted(c.kept);
    result_.finish = c.finish;
    result_.logprobs.insert(result_.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    result_.ids.insert(result_.ids.end(), event.ids.begin(), event.ids.end());
    if (event.block == 0)
        result_.counters.first_block_seconds = seconds();
    notify(event);
    if (c.finish != Finish::none)
        tokens.resize(size_t(c.kept) + (c.finish == Finish::stop));
}

void Decoder::close_block(std::vector<int> tokens) {
    add_text(tokens);
    if (!uncommitted_.empty()) // a block of forced tokens has no preview
        commit(std::exchange(uncommitted_, {}));
    if (!done() && fuses())
        uncommitted_ = std::move(tokens);
    else if (!done() || o_.commit_last)
        commit(tokens);
}

void Decoder::commit(const std::vector<int> &tokens) {
    const int64_t rows = m_.counters.rows;
    m_.commit(state_, tokens, Logits::none, false, nullptr, tick_);
    result_.counters.commits += m_.counters.rows != rows; // the last preview may have done it
}

void Decoder::notify(const Event &event) {
    // A text that is complete stays complete, whoever cancels afterwards.
    if (listener_ && !listener_(event) && !done())
        result_.finish = Finish::cancelled;
}

bool Decoder::is_stop(int id) const {
    return std::find(o_.stop_ids.begin(), o_.stop_ids.end(), id) != o_.stop_ids.end();
}

DecodeResult generate(Model &model, State &state, const std::vector<int> &prompt, const DecodeOptions &options,
                      const Listener &listener, const Tick &tick, const DraftModel *drafter, Constraint *constraint) {
    return Decoder(model, state, options, listener, tick, drafter, constraint).run(prompt);
}

} // namespace clover

// Decoding under a full mask: the text and a canvas of masks, as long as the answer may be, see each other. Blocks of
// the canvas are denoised from left to right; nothing is final for the model before the end, so a block that is done
// becomes text and nothing more.
#include <algorithm>
#include <numeric>

#include "decode/decoder.h"

namespace clover {
namespace {

constexpr double kLarge = 1e9;

} // namespace

void Decoder::check_unmasking() const {
    const UnmaskPolicy &c = o_.unmasking;
    check_range("eps", c.eps, 0, 1);
    check_range("confidence_temperature", c.confidence_temperature, 0, kLarge);
    check_range("stop_penalty", o_.stop_penalty, -kLarge, kLarge);
    const bool full = m_.spec.full_mask();
    if (!full && (o_.cache != StepCache::none || !c.plain() || o_.stop_penalty != 0))
        throw ArgumentError("cache, eps, confidence, confidence_temperature and stop_penalty are for models of mask "
                            "\"full\"");
    if (o_.cache != StepCache::none)
        m_.require_kernels("cache");
    if (full && (o_.editing.on() || o_.sub_block || o_.skip_rows || o_.credit > 0))
        throw ArgumentError("edit_threshold, sub_block, skip_rows and credit are not supported of mask \"full\"");
    if (c.eps > 0 && o_.policy.steps == 0)
        throw ArgumentError("eps needs steps");
    if (!c.plain() && !o_.strategy.plain())
        throw ArgumentError("strategy and factor are not supported together with eps, confidence or "
                            "confidence_temperature");
    if (c.confidence_temperature > 0 && c.confidence == Confidence::random)
        throw ArgumentError("confidence_temperature: random confidence has none");
    if (o_.stop_penalty != 0 && o_.sampling.repetition_penalty != 1)
        throw ArgumentError("stop_penalty is not supported together with repetition_penalty");
}

void Decoder::decode_masks() {
    o_.unmasking.base = o_.policy;
    o_.unmasking.strategy = o_.strategy;
    while (!done()) {
        std::vector<int> block(size_t(std::min<int64_t>(o_.block_length, budget())), m_.spec.mask_token_id);
        if (o_.fixed_schedule)
            o_.unmasking.base.schedule_width = int(block.size());
        constraint_ ? denoise_constrained(block) : denoise_masks(block);
        if (!done()) // else cancelled in the middle of the block
            close_block(std::move(block));
    }
}

void Decoder::denoise_masks(std::vector<int> &block) {
    bool whole = true; // as the block's first step is with any cache
    for (int s = 0; !done() && !settled(block); s++) {
        tick_();
        std::vector<int> masks;
        std::vector<double> u;
        for (int i = 0; i < int(block.size()); i++)
            if (masked(block[size_t(i)])) {
                masks.push_back(i);
                u.push_back(uniform(~o_.sampling.seed, state_.position + i, s)); // tokens are drawn by the seed itself
            }
        if (o_.unmasking.idle(u, s))
            continue;
        preview_masks(block, whole);
        Event event(Event::Type::step);
        const std::vector<Pick> picks = pick_masks(masks, whole, s);
        const std::vector<char> accepted = o_.unmasking.accept(picks, u, s);
        event.accepted.assign(block.size(), 0);
        event.draft = block;
        std::vector<int> rows, written;
        std::vector<int64_t> places;
        for (size_t i = 0; i < masks.size(); i++) {
            const size_t at = size_t(masks[i]);
            event.draft[at] = picks[i].id;
            if (!accepted[i])
                continue;
            event.accepted[at] = 1;
            block[at] = picks[i].id;
            seen_[picks[i].id]++;
            rows.push_back(int(first_row(whole) + masks[i]));
            places.push_back(place(at));
            written.push_back(picks[i].id);
        }
        note(m_.scratch.h.data(), rows, places, written);
        whole = false;
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = s;
        event.ids = block;
        notify(event);
    }
}

// With shifted logits the row in front of the block decides its first token, and is computed with it.
int64_t Decoder::first_computed(bool whole) const {
    return whole || o_.cache == StepCache::none ? 0 : state_.position - m_.spec.logit_shift;
}

// Of the last preview, which decides the block's first position.
int64_t Decoder::first_row(bool whole) const { return state_.position - m_.spec.logit_shift - first_computed(whole); }

void Decoder::preview_masks(const std::vector<int> &block, bool whole) {
    std::vector<int> canvas = block, rows;
    canvas.resize(size_t(budget()), m_.spec.mask_token_id);
    const int64_t first = first_computed(whole), end = state_.position + int64_t(canvas.size());
    const int64_t last = o_.cache == StepCache::dual ? state_.position + int64_t(block.size()) : end;
    PreviewOptions options;
    options.block = &kept_;
    if (!whole && o_.cache != StepCache::none) {
        rows.resize(size_t(last - first));
        std::iota(rows.begin(), rows.end(), int(first));
        options.rows = &rows;
    }
    m_.preview(state_, canvas, options);
}

// For positions of the block, a few rows at a time: statistics of a canvas's rows may be many.
std::vector<Pick> Decoder::pick_masks(const std::vector<int> &masks, bool whole, int step) {
    std::vector<HeadRule::Penalty> penalties;
    const HeadRule rule = this->rule(penalties);
    const size_t most = size_t(m_.scratch.rows());
    std::vector<Pick> picks;
    for (size_t at = 0; at < masks.size(); at += most) {
        std::vector<int> rows;
        std::vector<double> u;
        for (size_t i = at; i < std::min(masks.size(), at + most); i++) {
            rows.push_back(int(first_row(whole) + masks[i]));
            u.push_back(uniform(o_.sampling.seed, state_.position + masks[i], step));
        }
        HeadPass head = head_pass(m_, m_.scratch.h.data(), rows, rule);
        const std::vector<Pick> found = pick(head, o_.sampling, u, o_.unmasking.measure());
        picks.insert(picks.end(), found.begin(), found.end());
    }
    return picks;
}

} // namespace clover

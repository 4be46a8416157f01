// Speculation: something drafts a block, one causal pass verifies it, and the state goes back to the longest
// prefix that autoregressive decoding would have written, too. A draw depends on nothing but the seed and the place in
// the text, so that "accept the drafted d with its probability p(d), else draw from p without d" is: draw from p, and
// see whether it is d. The text is thus the autoregressive one when sampling, too.
#include "decode/decoder.h"

namespace clover {

void Decoder::decode_speculatively() {
    DecodeCounters &count = result_.counters;
    Pick next = constraint_ ? Pick{next_allowed(), 1} : next_token();
    while (!done()) {
        tick_();
        size_t given = 0;
        const std::vector<int> drafted = draft(next.id, given);
        for (size_t i = 0; i < given; i++)
            seen_[drafted[i]]++;
        const int64_t start = state_.position;
        const size_t kept = constraint_ ? verify_allowed(drafted, given, next) : verify(drafted, next);
        note_verified(drafted, kept, next);
        std::vector<int> tokens(drafted.begin(), drafted.begin() + std::ptrdiff_t(kept));
        Event event(Event::Type::step);
        event.block = int(count.blocks);
        event.draft = drafted;
        event.ids = tokens;
        event.ids.resize(drafted.size(), m_.spec.mask_token_id);
        event.accepted.assign(drafted.size(), 0);
        std::fill_n(event.accepted.begin(), kept, char(1));
        notify(event);
        add_text(tokens);
        m_.truncate(state_, start + int64_t(tokens.size()));
        drafter_->follow(int(tokens.size()));
    }
    state_.drop_rollback();
}

// `first`, what a constraint forces behind it (`given` tokens, with the first), and the drafter's guess.
std::vector<int> Decoder::draft(int first, size_t &given) {
    const int rows = int(std::min<int64_t>(o_.block_length, budget()));
    std::vector<int> drafted = {first};
    if (constraint_ && !is_stop(first))
        for (int id : force(rows - 1, budget() - 1))
            drafted.push_back(id);
    given = drafted.size();
    if (int(given) == rows || (constraint_ && is_stop(drafted.back())))
        return drafted;
    (external_ ? result_.counters.drafter_passes : result_.counters.denoise_steps)++;
    return drafter_->draft(drafted, rows);
}

// Row by row of the pass that verified, the token behind it.
void Decoder::note_verified(const std::vector<int> &drafted, size_t kept, const Pick &next) {
    std::vector<int> rows, ids;
    std::vector<int64_t> places;
    for (size_t row = 0; row < kept; row++) {
        rows.push_back(int(row));
        places.push_back(place(row + 1));
        ids.push_back(row + 1 < kept ? drafted[row + 1] : next.id);
    }
    note(m_.scratch.h.data(), rows, places, ids);
}

void Decoder::verify_pass(const std::vector<int> &drafted) {
    m_.commit(state_, drafted, Logits::none, true, nullptr, tick_);
    result_.counters.commits++;
    last_.reset();
}

// How many tokens of the draft stand; `next` becomes the one behind them.
size_t Decoder::verify(const std::vector<int> &drafted, Pick &next) {
    const int64_t start = state_.position;
    verify_pass(drafted);
    // Penalties count the tokens in front, so that a row has its own; without them one pass over the head does.
    const size_t at_once = o_.sampling.penalties() ? 1 : drafted.size();
    std::vector<Pick> picks;
    for (size_t row = 0; row < drafted.size(); row++) {
        if (row == picks.size()) {
            std::vector<int> rows;
            std::vector<int64_t> positions;
            for (size_t r = row; r < row + at_once; r++) {
                rows.push_back(int(r));
                positions.push_back(start + int64_t(r) + 1);
            }
            for (const Pick &pick : pick_rows(m_.scratch.h.data(), rows, positions, 0))
                picks.push_back(pick);
        }
        next = picks[row];
        if (row + 1 == drafted.size() || next.id != drafted[row + 1])
            return row + 1;
        seen_[next.id]++;
    }
    return drafted.size();
}

// The same under a constraint, which knows of the `given` tokens. There is no token behind the end of the text.
size_t Decoder::verify_allowed(const std::vector<int> &drafted, size_t given, Pick &next) {
    Deciding deciding{m_.scratch.h.data(), {}, {}, {}};
    for (size_t row = given - 1; row < drafted.size(); row++) {
        deciding.rows.push_back(int(row));
        deciding.positions.push_back(state_.position + int64_t(row) + 1);
    }
    verify_pass(drafted);
    for (size_t row = given - 1;; row++) {
        if (is_stop(drafted[row]) || budget() == int64_t(row + 1))
            return row + 1;
        next.id = next_allowed(deciding, row + 1 - given, row + 1);
        if (row + 1 == drafted.size() || next.id != drafted[row + 1])
            return row + 1;
        seen_[next.id]++;
    }
}

} // namespace clover

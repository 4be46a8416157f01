// Speculation: something drafts a block, one causal pass verifies it, and the state goes back to the longest
// prefix that autoregressive decoding would have written, too. A draw depends on nothing but the seed and the place in
// the text, so that "accept the drafted d with its probability p(d), else draw from p without d" is: draw from p, and
// see whether it is d. The text is thus the autoregressive one when sampling, too.
#include "decode/decoder.h"

namespace clover {

void Decoder::decode_speculatively() {
    DecodeCounters &count = result_.counters;
    Pick next = next_token();
    while (!done()) {
        tick_();
        const int rows = int(std::min<int64_t>(o_.block_length, budget()));
        std::vector<int> drafted = {next.id};
        if (rows > 1) {
            drafted = drafter_->draft(next.id, rows);
            (external_ ? count.drafter_passes : count.denoise_steps)++;
        }
        seen_[next.id]++;
        const int64_t start = state_.position;
        const size_t kept = verify(drafted, next);
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

// How many tokens of the draft stand; `next` becomes the one behind them.
size_t Decoder::verify(const std::vector<int> &drafted, Pick &next) {
    const int64_t start = state_.position;
    m_.commit(state_, drafted, Logits::none, true, nullptr, tick_);
    result_.counters.commits++;
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

} // namespace clover

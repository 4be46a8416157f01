// Block diffusion: previews of a block until no mask is left, then its commit.
#include <algorithm>

#include "decode/decoder.h"

namespace clover {

void Decoder::decode_blocks() {
    while (!done()) {
        std::vector<int> block(size_t(o_.block_length), m_.spec.mask_token_id);
        denoise(block);
        if (!done()) // else cancelled in the middle of the block
            close_block(std::move(block));
    }
}

void Decoder::denoise(std::vector<int> &block) {
    for (int s = 0; !settled(block) && !done(); s++) {
        tick_();
        Event event(Event::Type::step);
        event.accepted = step(block, s, event.draft);
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = s;
        event.ids = block;
        notify(event);
    }
}

// One preview. Writes accepted picks into the block and all picks into the draft.
std::vector<char> Decoder::step(std::vector<int> &block, int step, std::vector<int> &draft) {
    m_.preview(state_, block, {o_.coreset, 0});
    std::vector<int> masked;
    for (size_t i = 0; i < block.size(); i++)
        if (block[i] == m_.spec.mask_token_id)
            masked.push_back(int(i));
    const std::vector<Pick> picks = pick_rows(m_.scratch.h.data(), masked, state_.position, step);
    std::vector<float> probability;
    for (const Pick &p : picks)
        probability.push_back(p.probability);
    const std::vector<char> accepted = o_.policy.accept(probability, step);
    draft = block;
    std::vector<char> positions(block.size(), 0);
    for (size_t i = 0; i < masked.size(); i++) {
        draft[size_t(masked[i])] = picks[i].id;
        if (!accepted[i])
            continue;
        block[size_t(masked[i])] = picks[i].id;
        positions[size_t(masked[i])] = 1;
        seen_[picks[i].id]++;
    }
    return positions;
}

// Nothing that is still masked can change the text: no mask is left in front of the stop token or the end of
// the budget. Accepted tokens stay, so steps beyond this point would be for nobody.
bool Decoder::settled(const std::vector<int> &block) const {
    const int64_t limit = std::min<int64_t>(int64_t(block.size()), budget());
    for (int64_t i = 0; i < limit; i++) {
        if (block[size_t(i)] == m_.spec.mask_token_id)
            return false;
        if (is_stop(block[size_t(i)]))
            return true;
    }
    return true;
}

} // namespace clover

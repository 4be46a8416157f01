// Block diffusion: previews of a block until no mask is left, then its commit.
#include <algorithm>
#include <utility>

#include "decode/decoder.h"

namespace clover {

void Decoder::decode_blocks() {
    while (!done()) {
        std::vector<int> block = new_block();
        if (constraint_)
            denoise_constrained(block);
        else
            m_.spec.inserts() ? denoise_with_indel(block) : denoise(block);
        if (!done()) // else cancelled in the middle of the block
            close_block(std::move(block));
    }
}

// Whether a block's commit waits for the next one's first pass. Where the commit decides the
// next block's first token, it cannot; where a backend computes, it would be a pass of its own there.
bool Decoder::fuses() const {
    return mode_ == DecodeMode::diffusion && o_.fused_commit && !m_.spec.row_before_decides() &&
           !m_.spec.uniform_noise() && !m_.spec.full_mask() && !m_.executor;
}

// Masks up to the end of the block that the state has open, or of the next one. The row before it may have
// decided its first token.
std::vector<int> Decoder::new_block() {
    const size_t open = uncommitted_.empty() ? state_.open.size() : 0;
    std::vector<int> block(size_t(o_.block_length) - open, m_.spec.mask_token_id);
    if (m_.spec.row_before_decides() && open == 0) {
        block[0] = constraint_ ? next_allowed() : next_token().id;
        seen_[block[0]]++;
    }
    kept_.clear();
    credit_.clear();
    computed_.clear();
    return block;
}

void Decoder::denoise(std::vector<int> &block) {
    EditProgress progress;
    for (int s = 0; !done(); s++) {
        const bool any = std::any_of(block.begin(), block.end(), [&](int id) { return masked(id); });
        if (o_.editing.on() ? progress.done(o_.editing, any) : settled(block))
            break;
        tick_();
        Event event(Event::Type::step);
        event.accepted = step(block, s, event.draft);
        progress.step(any, std::find(event.accepted.begin(), event.accepted.end(), 1) != event.accepted.end());
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = s;
        event.ids = block;
        notify(event);
    }
}

// Positions that this step may write: masked ones, all or those of the first sub-block that has any; with editing
// the others, too.
std::vector<int> Decoder::candidates(const std::vector<int> &block) const {
    const int open = int(state_.open.size());
    int end = int(block.size());
    std::vector<int> positions;
    for (int i = 0; i < end; i++) {
        if (!masked(block[size_t(i)]) && !o_.editing.on())
            continue;
        if (positions.empty() && o_.sub_block) // sub-blocks are counted from the start of the whole block
            end = std::min(end, ((open + i) / o_.sub_block + 1) * o_.sub_block - open);
        positions.push_back(i);
    }
    return positions;
}

// Which of the picks take the place of the tokens.
std::vector<char> Decoder::accept(const std::vector<int> &tokens, const std::vector<Pick> &picks,
                                  const std::vector<double> &entropy, int step) const {
    std::vector<float> probability; // at masks
    for (size_t i = 0; i < picks.size(); i++)
        if (masked(tokens[i]))
            probability.push_back(picks[i].probability);
    const std::vector<char> at_masks = o_.strategy.accept(o_.policy, probability, entropy, step);
    std::vector<char> accepted;
    for (size_t i = 0, mask = 0; i < picks.size(); i++)
        accepted.push_back(masked(tokens[i]) ? at_masks[mask++]
                                             : o_.editing.replaces(tokens[i], picks[i].id, picks[i].probability));
    return accepted;
}

// Rows of `all`, [open | block], that the next preview of the block computes.
std::vector<int> Decoder::rows_to_compute(const std::vector<int> &all, int step) const {
    std::vector<int> rows;
    const bool any = o_.skip_rows && !computed_.empty() && !(o_.refresh && step % o_.refresh == 0);
    for (int row = 0; row < int(all.size()); row++) {
        const int decides = row + m_.spec.logit_shift;
        const bool needed = masked(all[size_t(row)]) || (decides < int(all.size()) && masked(all[size_t(decides)]));
        if (!any || needed || computed_[size_t(row)] != all[size_t(row)])
            rows.push_back(row);
    }
    return rows;
}

void Decoder::preview(const std::vector<int> &block, int step) {
    std::vector<int> all = uncommitted_.empty() ? state_.open : std::vector<int>();
    all.insert(all.end(), block.begin(), block.end());
    rows_ = rows_to_compute(all, step);
    PreviewOptions options;
    options.coreset = o_.coreset;
    options.coreset_share = step > 0 ? o_.coreset_share : 0;
    if (o_.skip_rows || o_.coreset)
        options.block = &kept_;
    if (rows_.size() < all.size())
        options.rows = &rows_;
    front_ = 0;
    if (uncommitted_.empty())
        m_.preview(state_, block, options);
    else
        front_ = m_.commit_and_preview(state_, std::exchange(uncommitted_, {}), block, options);
    computed_ = std::move(all);
}

int Decoder::output_row(int row) const {
    return front_ + int(std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin());
}

// One preview. Writes accepted picks into the block and all picks at masks into the draft.
std::vector<char> Decoder::step(std::vector<int> &block, int step, std::vector<int> &draft) {
    preview(block, step);
    const int before = int(state_.open.size()) - m_.spec.logit_shift; // rows in front of position 0's
    const std::vector<int> positions = candidates(block);
    std::vector<int> rows, tokens;
    std::vector<int64_t> places;
    for (int i : positions) {
        rows.push_back(output_row(before + i));
        tokens.push_back(block[size_t(i)]);
        places.push_back(state_.position + i);
    }
    std::vector<double> entropy;
    const std::vector<Pick> picks =
        pick_rows(m_.scratch.h.data(), rows, places, step, o_.strategy.needs_entropy() ? &entropy : nullptr);
    const std::vector<char> accepted = accept(tokens, picks, entropy, step);
    draft = block;
    std::vector<char> changed(block.size(), 0);
    std::vector<int> written_rows, written;
    std::vector<int64_t> written_places;
    for (size_t i = 0; i < positions.size(); i++) {
        const size_t at = size_t(positions[i]);
        if (masked(tokens[i]))
            draft[at] = picks[i].id;
        if (!accepted[i])
            continue;
        if (!masked(tokens[i]))
            seen_[tokens[i]]--;
        block[at] = draft[at] = picks[i].id;
        changed[at] = 1;
        seen_[picks[i].id]++;
        written_rows.push_back(rows[i]);
        written_places.push_back(place(at));
        written.push_back(picks[i].id);
    }
    note(m_.scratch.h.data(), written_rows, written_places, written);
    return changed;
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

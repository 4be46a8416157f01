// Denoising under a constraint. Acceptance runs from left to right: what stands in front of `front` is the text and the
// constraint knows of it. Positions behind it are drafted in any order, as context; a draft stands once the front
// reaches it, if it is allowed there. Where the constraint puts another token than the model wanted, what was drafted
// behind it speaks of another text and is dropped.
#include <algorithm>

#include "decode/decoder.h"

namespace clover {
namespace {

// Not the draws of uniform(seed, ...): a redraw must not depend on the draw that was not allowed.
uint64_t redraws(uint64_t seed) { return ~seed; }

} // namespace

void Decoder::check_constraint() const {
    if (!constraint_)
        return;
    if (o_.stop_ids.empty())
        throw ArgumentError("constraint: needs a stop token");
    if (mode_ == DecodeMode::diffusion && (m_.spec.uniform_noise() || m_.spec.inserts()))
        throw UnsupportedModel("constraints are not supported where blocks start as random ids, or tokens insert and "
                               "delete");
    if (o_.policy.steps || o_.fixed_schedule || !o_.strategy.plain() || o_.credit > 0 || o_.editing.on() ||
        !o_.unmasking.plain())
        throw ArgumentError("steps, fixed_schedule, strategy, factor, credit, edit_threshold, eps, confidence and "
                            "confidence_temperature are not supported together with a constraint");
}

std::vector<int> Decoder::force(int64_t most, int64_t room) {
    if (most <= 0)
        return {};
    const std::vector<int> ids = constraint_->force(most, room);
    if (int64_t(ids.size()) > most)
        throw Error("constraint: forces " + std::to_string(ids.size()) + " tokens of at most " + std::to_string(most));
    for (int id : ids)
        if (id < 0 || id >= m_.spec.valid_vocab || id == m_.spec.mask_token_id)
            throw Error("constraint: forces " + std::to_string(id) + ", which is no token");
    if (ids.empty() && refused_)
        throw Error("constraint: refuses a token and forces none");
    refused_ = false;
    return ids;
}

bool Decoder::advance(int id, int64_t room) {
    refused_ = !constraint_->advance(id, room);
    return !refused_;
}

// The token of one row of the last pass over the head, which decides `position`; `free`: its pick without constraint.
Pick Decoder::allowed_pick(int row, int64_t position, int step, const uint32_t *allowed, const Pick &free) {
    const uint64_t seed = o_.sampling.seed; // with top-k or top-p the draw is repeated among allowed tokens
    const double u = uniform(o_.sampling.cuts() ? seed : redraws(seed), position, step);
    return pick_allowed(last_->head, row, allowed, o_.sampling, free, u);
}

// What deciding.rows[i] decides, behind `ahead` tokens that are no text yet: forced, or picked and told.
int Decoder::next_allowed(Deciding &deciding, size_t i, size_t ahead) {
    const int64_t room = budget() - int64_t(ahead);
    for (;;) {
        const std::vector<int> forced = force(1, room);
        if (!forced.empty())
            return forced[0];
        const uint32_t *allowed = constraint_->allowed();
        int id = only_allowed(allowed, m_.spec.valid_vocab);
        if (id < 0) {
            if (deciding.picks.empty() || o_.sampling.penalties()) // which count the tokens in front
                deciding.picks = pick_rows(deciding.hidden, deciding.rows, deciding.positions, 0);
            id = allowed_pick(int(i), deciding.positions[i], 0, allowed, deciding.picks[i]).id;
        }
        if (advance(id, room - 1))
            return id;
    }
}

int Decoder::next_allowed() {
    last_.reset();
    Deciding deciding{state_.hidden.data(), {0}, {state_.position}, {}};
    const int id = next_allowed(deciding, 0, 0);
    note(state_.hidden.data(), {0}, {place(0)}, {id});
    return id;
}

// The next token and what is forced behind it, as much as one pass takes.
std::vector<int> Decoder::next_run() {
    std::vector<int> tokens = {next_allowed()};
    if (!is_stop(tokens[0]))
        for (int id : force(std::min<int64_t>(Model::kChunkRows, budget()) - 1, budget() - 1))
            tokens.push_back(id);
    return tokens;
}

// Positions from `from` on are masked again.
void Decoder::drop_drafts(std::vector<int> &block, size_t from) const {
    std::fill(block.begin() + std::ptrdiff_t(from), block.end(), m_.spec.mask_token_id);
}

bool Decoder::at_end(const Front &front, const std::vector<int> &block) const {
    return front.at == front.limit || (front.at > 0 && is_stop(block[front.at - 1]));
}

// A token that the constraint knows of already. draft: what the last pass wanted, a mask where it was not asked.
void Decoder::stand(std::vector<int> &block, Front &front, int id, const std::vector<int> &draft) {
    const int wanted = draft[front.at];
    block[front.at++] = id;
    seen_[id]++;
    if (wanted != id && !masked(wanted)) {
        front.overruled = true;
        drop_drafts(block, front.at);
    }
}

// Moves the front over what needs no pick: forced tokens, and drafts that are allowed. Returns the ids that are allowed
// where it halts, or null where the block is at its end.
const uint32_t *Decoder::move_front(std::vector<int> &block, Front &front, const std::vector<int> &draft) {
    while (!at_end(front, block)) {
        const int64_t room = budget() - int64_t(front.at);
        const std::vector<int> forced = force(int64_t(front.limit - front.at), room);
        for (int id : forced)
            stand(block, front, id, draft);
        if (!forced.empty())
            continue;
        const uint32_t *allowed = constraint_->allowed();
        int id = block[front.at];
        if (!masked(id) && !is_allowed(allowed, id)) {
            drop_drafts(block, front.at);
            front.overruled = true;
        }
        if (masked(block[front.at]))
            id = only_allowed(allowed, m_.spec.valid_vocab);
        if (id < 0)
            return allowed;
        if (advance(id, room - 1))
            stand(block, front, id, draft);
    }
    return nullptr;
}

void Decoder::denoise_constrained(std::vector<int> &block) {
    Front front;
    front.limit = size_t(std::min<int64_t>(int64_t(block.size()), budget()));
    while (front.at < front.limit && !masked(block[front.at])) // new_block() has told of it
        front.at++;
    std::vector<int> draft(block.size(), m_.spec.mask_token_id);
    const uint32_t *allowed = move_front(block, front, draft);
    for (int s = 0; !done() && allowed; s++) {
        tick_();
        Event event(Event::Type::step);
        const size_t from = front.at;
        allowed = constrained_step(block, front, allowed, s, event.draft);
        event.accepted.assign(block.size(), 0);
        std::fill(event.accepted.begin() + std::ptrdiff_t(from), event.accepted.begin() + std::ptrdiff_t(front.at),
                  char(1));
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = s;
        event.ids = block;
        drop_drafts(event.ids, front.at);
        notify(event);
    }
}

// Rows of the last preview that decide `positions` of the block, as many as the head can take at once.
std::vector<int> Decoder::deciding_rows(std::vector<int> &positions, bool whole) const {
    const int before = int(state_.open.size()) - m_.spec.logit_shift; // rows in front of position 0's
    positions.resize(std::min(positions.size(), size_t(m_.scratch.rows())));
    std::vector<int> rows;
    for (int i : positions)
        rows.push_back(m_.spec.full_mask() ? int(first_row(whole) + i) : output_row(before + i));
    return rows;
}

// One preview. The front moves while picks are sure, at least over one token; behind it what is sure is drafted.
const uint32_t *Decoder::constrained_step(std::vector<int> &block, Front &front, const uint32_t *allowed, int step,
                                          std::vector<int> &draft) {
    m_.spec.full_mask() ? preview_masks(block, step == 0) : preview(block, step);
    std::vector<int> positions = candidates(block);
    const std::vector<int> rows = deciding_rows(positions, step == 0);
    std::vector<int64_t> places;
    for (int i : positions)
        places.push_back(state_.position + i);
    const std::vector<Pick> picks = pick_rows(m_.scratch.h.data(), rows, places, step);
    draft = block;
    for (size_t i = 0; i < positions.size(); i++)
        draft[size_t(positions[i])] = picks[i].id;
    front.overruled = false;
    allowed = pick_front(block, front, allowed, step, positions, picks, draft);
    for (size_t i = 0; !front.overruled && i < positions.size(); i++)
        if (positions[i] > int(front.at) && double(picks[i].probability) > o_.policy.threshold)
            block[size_t(positions[i])] = picks[i].id;
    for (size_t i = 0; i < block.size(); i++)
        draft[i] = masked(block[i]) ? draft[i] : block[i];
    note_written(block, positions, rows);
    return allowed;
}

// The picks of one preview, looked_at[i] with picks[i], from the front on.
const uint32_t *Decoder::pick_front(std::vector<int> &block, Front &front, const uint32_t *allowed, int step,
                                    const std::vector<int> &looked_at, const std::vector<Pick> &picks,
                                    const std::vector<int> &draft) {
    const auto sure = [&](const Pick &pick) { return double(pick.probability) > o_.policy.threshold; };
    for (bool first = true; allowed && !front.overruled; first = false) {
        const auto at = std::lower_bound(looked_at.begin(), looked_at.end(), int(front.at));
        if (at == looked_at.end() || *at != int(front.at))
            break; // behind what the step may write
        const size_t i = size_t(at - looked_at.begin());
        Pick pick = picks[i]; // among all ids it is less probable than among those that are allowed
        if (o_.sampling.cuts() || !is_allowed(allowed, pick.id) || (!first && !sure(pick)))
            pick = allowed_pick(int(i), state_.position + *at, step, allowed, picks[i]);
        if (!first && !sure(pick)) {
            front.overruled = !is_allowed(allowed, picks[i].id); // what is drafted behind it would follow that
            break;
        }
        if (advance(pick.id, budget() - int64_t(front.at) - 1))
            stand(block, front, pick.id, draft);
        allowed = move_front(block, front, draft);
    }
    return allowed;
}

// Log-probabilities of what now stands or is drafted at positions that the last preview has looked at.
void Decoder::note_written(const std::vector<int> &block, const std::vector<int> &positions,
                           const std::vector<int> &rows) {
    std::vector<int> written, of;
    std::vector<int64_t> places;
    for (size_t i = 0; i < positions.size(); i++) {
        const size_t at = size_t(positions[i]);
        if (masked(block[at]))
            continue;
        written.push_back(block[at]);
        of.push_back(rows[i]);
        places.push_back(place(at));
    }
    note(m_.scratch.h.data(), of, places, written);
}

} // namespace clover

// Block diffusion of models whose tokens may insert and delete.
#include <algorithm>

#include "decode/decoder.h"
#include "decode/indel.h"

namespace clover {

void Decoder::check_indel() const {
    if (o_.policy.steps || o_.fixed_schedule || o_.sub_block || o_.skip_rows || !o_.strategy.plain() || o_.credit > 0)
        throw ArgumentError(
            "steps, fixed_schedule, sub_block, skip_rows, strategy, factor and credit are not supported "
            "of models whose tokens insert and delete");
    if (o_.logprobs >= 0)
        throw ArgumentError("logprobs are not supported of models whose tokens insert and delete");
    if (o_.sampling.temperature > 0 || o_.sampling.penalties())
        throw ArgumentError("temperature and penalties are not supported of models whose tokens insert and delete");
}

// Until a step writes nothing, or has cleaned up.
void Decoder::denoise_with_indel(std::vector<int> &block) {
    const Spec &s = m_.spec;
    IndelBlock progress({s.mask_token_id, s.delete_token_id, s.split_token_id, o_.policy.threshold, o_.editing},
                        block.size());
    for (int step = 0; !done() && !progress.done(); step++) {
        tick_();
        preview(block, step);
        Event event(Event::Type::step);
        event.accepted = progress.step(block, [&](const std::vector<int> &positions, const std::vector<int> &banned) {
            return best_at(positions, banned);
        });
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = step;
        event.ids = event.draft = block;
        notify(event);
    }
}

std::vector<IndelBlock::Best> Decoder::best_at(const std::vector<int> &positions, std::vector<int> banned) {
    constexpr float out_of_reach = 1e30f; // below every logit, and yet finite
    std::sort(banned.begin(), banned.end());
    std::vector<HeadRule::Penalty> penalties;
    for (int id : banned)
        penalties.push_back({id, out_of_reach});
    HeadRule rule{};
    rule.penalties = penalties.data();
    rule.penalty_count = int(penalties.size());
    const int before = int(state_.open.size());
    std::vector<int> rows;
    for (int position : positions)
        rows.push_back(output_row(before + position));
    const HeadPass head = head_pass(m_, m_.scratch.h.data(), rows, rule, true);
    std::vector<IndelBlock::Best> best;
    for (int row = 0; row < head.rows(); row++)
        best.push_back({head.total(row).argmax, head.total(row).max, 1 / head.total(row).sum_exp});
    return best;
}

} // namespace clover

// Block diffusion from random ids: a canvas is drawn, kept and drawn again until it rests, then committed.
#include <limits>
#include <numeric>

#include "decode/decoder.h"
#include "model/self_conditioning.h"

namespace clover {

void Decoder::check_canvases() const {
    const RenoisePolicy &r = o_.renoise;
    constexpr double large = 1e9;
    check_range("t_min", r.t_min, 0, large);
    check_range("t_max", r.t_max, r.t_min, large);
    check_range("entropy_bound", r.entropy_bound, 0, large);
    check_range("stability_threshold", r.stability_threshold, 0, large);
    check_range("confidence_threshold", r.confidence_threshold, 0, large);
    if (o_.sub_block || o_.editing.on() || o_.fixed_schedule || o_.skip_rows || !o_.strategy.plain() || o_.credit > 0)
        throw ArgumentError(
            "sub_block, edit_threshold, fixed_schedule, skip_rows, strategy, factor and credit are not supported "
            "of canvases of random ids");
}

void Decoder::decode_canvases() {
    while (!done()) {
        std::vector<int> canvas = denoise_canvas();
        if (done()) // cancelled in the middle of the canvas
            return;
        for (int id : canvas)
            seen_[id]++;
        close_block(std::move(canvas));
    }
}

// A random real id for a position in front of a step; picks draw under step numbers from 0 up.
int Decoder::noise(int64_t position, int step) const {
    return int(uniform(o_.sampling.seed, position, -1 - step) * m_.spec.valid_vocab);
}

// The most probable ids of the last step.
std::vector<int> Decoder::denoise_canvas() {
    const int width = o_.block_length, steps = o_.policy.steps ? o_.policy.steps : RenoisePolicy::kSteps;
    std::vector<int> canvas, best(size_t(width), 0);
    for (int i = 0; i < width; i++)
        canvas.push_back(noise(state_.position + i, 0));
    Stability stability;
    bool settled = false;
    for (int s = 0; s < steps && !settled && !done(); s++) {
        tick_();
        Event event(Event::Type::step);
        const std::vector<double> entropy = canvas_step(canvas, s, steps, best, event.accepted);
        settled = stability.settled(o_.renoise, best, entropy);
        result_.counters.denoise_steps++;
        event.block = int(result_.counters.blocks);
        event.step = s;
        event.ids = canvas;
        event.draft = best;
        notify(event);
    }
    if (!done()) { // of what the last step has found
        std::vector<int> rows(best.size());
        std::iota(rows.begin(), rows.end(), 0);
        std::vector<int64_t> places;
        for (int row : rows)
            places.push_back(place(size_t(row)));
        note(m_.scratch.h.data(), rows, places, best);
    }
    return best;
}

// One preview. Draws anew at every position, keeps what the bound allows and renoises the rest.
std::vector<double> Decoder::canvas_step(std::vector<int> &canvas, int step, int steps, std::vector<int> &best,
                                         std::vector<char> &accepted) {
    const bool conditioned = m_.spec.self_conditioning_intermediate > 0;
    float *soft = conditioned ? m_.scratch.soft.data() : nullptr;
    PreviewOptions options;
    options.coreset = o_.coreset;
    options.coreset_share = step > 0 ? o_.coreset_share : 0;
    options.soft = step ? soft : nullptr;
    m_.preview(state_, canvas, options);
    SamplingOptions sampling = o_.sampling;
    sampling.temperature = o_.renoise.temperature(step, steps);
    std::vector<int> rows;
    std::vector<double> u;
    for (int i = 0; i < int(canvas.size()); i++) {
        rows.push_back(i);
        u.push_back(uniform(sampling.seed, state_.position + i, step));
    }
    std::vector<HeadRule::Penalty> penalties;
    HeadRule rule = head_rule(sampling, seen_, penalties);
    if (sampling.temperature == 0) // the distribution is the most probable id
        rule.inverse_temperature = std::numeric_limits<float>::max();
    HeadPass head = head_pass(m_, m_.scratch.h.data(), rows, rule);
    const std::vector<Pick> picks = pick(head, sampling, u);
    const std::vector<double> entropy = soften(m_, head, step + 1 < steps ? soft : nullptr);
    accepted = o_.renoise.accept(entropy);
    for (int i = 0; i < int(canvas.size()); i++) {
        const size_t at = size_t(i);
        best[at] = head.total(i).argmax;
        canvas[at] = accepted[at] ? picks[at].id : noise(state_.position + i, step + 1);
    }
    return entropy;
}

} // namespace clover

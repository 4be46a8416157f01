// Which positions of a canvas a denoising step accepts: the rules that models with full attention are decoded by.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/policy.h"
#include "decode/sampling.h"
#include "decode/strategy.h"

namespace clover {

// Keys and values that the steps of a block share. none: every step computes all of text and canvas. The others are
// approximations that Fast-dLLM makes (Wu et al., 2025): a block's first step computes everything, the later ones the
// block and what is behind it (prefix), or the block alone (dual).
enum class StepCache { none, prefix, dual };

struct UnmaskPolicy {
    ThresholdPolicy base;    // where eps is 0
    StrategyPolicy strategy; // where none of what follows is on
    // Above 0: t falls from 1 to eps in `steps` equal steps, and of n masked positions floor(n (1 - t' / t)) are
    // accepted where a step takes t to t', the last step accepting all. Of random confidence each by itself, with
    // probability 1 - t' / t.
    double eps = 0;
    Confidence confidence = Confidence::probability; // what ranks positions
    double confidence_temperature = 0; // above 0: ranks are drawn, by the softmax of confidence / temperature

    bool plain() const { return eps == 0 && confidence == Confidence::probability && confidence_temperature == 0; }
    // What the picks' confidences are to be.
    Confidence measure() const { return strategy.needs_entropy() ? Confidence::entropy : confidence; }

    // Whether a step accepts nothing whatever the model says. u [n]: a number in [0, 1) for each masked position.
    bool idle(const std::vector<double> &u, int step) const;
    // accepted[i], for the picks of all masked positions. Ties go to the lower position.
    std::vector<char> accept(const std::vector<Pick> &, const std::vector<double> &u, int step) const;

  private:
    double share(int step) const; // 1 - t' / t
    size_t scheduled(size_t masked, int step) const;
};

} // namespace clover

// By which rule a denoising step chooses among the masked positions of a block.
#pragma once

#include <cstddef>
#include <vector>

#include "decode/policy.h"

namespace clover {

// low_confidence_dynamic: whatever is above the threshold, at least the scheduled number. low_confidence_static: the
// scheduled number. sequential: as many, from left to right. entropy_bounded: see accept_by_entropy.
enum class Strategy { low_confidence_dynamic, low_confidence_static, sequential, entropy_bounded };

struct StrategyPolicy {
    Strategy strategy = Strategy::low_confidence_dynamic;
    // Above 0, in place of the threshold: the n most probable with the largest n whose n-th probability is at least
    // 1 - factor / (n + 1) (Fast-dLLM, Wu et al., 2025).
    double factor = 0;
    double entropy_bound = 0.35;

    bool plain() const { return strategy == Strategy::low_confidence_dynamic && factor == 0; }
    bool needs_entropy() const { return strategy == Strategy::entropy_bounded; }

    // accepted[i] of the i-th masked position; `base` gives the threshold and the scheduled number. entropy: of the
    // same positions, where it is needed. Ties go to the lower position.
    std::vector<char> accept(const ThresholdPolicy &base, const std::vector<float> &probability,
                             const std::vector<double> &entropy, int step) const;
};

// Positions in ascending order of entropy, as long as those before one sum to no more than the bound: their ids are
// then nearly independent. At least `least`; ties go to the lower position. (Ben-Hamu et al., arXiv 2505.24857.)
std::vector<char> accept_by_entropy(const std::vector<double> &entropy, double bound, std::size_t least);

} // namespace clover

// Which masked positions of a block a denoising step accepts.
#pragma once

#include <cstddef>
#include <vector>

namespace clover {

struct ThresholdPolicy {
    double threshold = 0.9; // accept where the probability is strictly above
    int steps = 0;          // most steps for a block; 0: no limit
    int schedule_width = 0; // positions that the steps share out; 0: those that are masked

    // probability[i]: of the pick at the i-th masked position; step: steps done in this block before. Returns
    // accepted[i]. At least one is accepted, and where `steps` sets a limit, enough for the block to be full
    // after its last step; the most probable first, ties to the lower position. With a schedule_width every step
    // has its number from the start, the first ones one more where they do not divide it.
    std::vector<char> accept(const std::vector<float> &probability, int step) const;
    // Fewest of `masked` positions that a step accepts.
    std::size_t least(std::size_t masked, int step) const;
};

} // namespace clover

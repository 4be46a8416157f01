#include "decode/policy.h"

#include <algorithm>
#include <numeric>

namespace clover {

std::vector<char> ThresholdPolicy::accept(const std::vector<float> &probability, int step) const {
    const size_t masked = probability.size();
    size_t least = 1;
    if (steps > 0 && schedule_width > 0) {
        least = std::max(least, size_t(schedule_width / steps + (step < schedule_width % steps)));
    } else if (steps > 0) {
        const size_t left = size_t(std::max(1, steps - step));
        least = std::max(least, (masked + left - 1) / left);
    }
    std::vector<size_t> order(masked);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probability[a] > probability[b]; });
    std::vector<char> accepted(masked, 0);
    for (size_t i = 0; i < masked; i++)
        accepted[order[i]] = i < least || double(probability[order[i]]) > threshold;
    return accepted;
}

} // namespace clover

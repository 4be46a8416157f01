#include "decode/policy.h"

#include <algorithm>
#include <numeric>

namespace clover {

size_t ThresholdPolicy::least(size_t masked, int step) const {
    if (steps > 0 && schedule_width > 0)
        return std::max<size_t>(1, size_t(schedule_width / steps + (step < schedule_width % steps)));
    const size_t left = size_t(std::max(1, steps - step));
    return steps > 0 ? std::max<size_t>(1, (masked + left - 1) / left) : 1;
}

std::vector<char> ThresholdPolicy::accept(const std::vector<float> &probability, int step) const {
    const size_t masked = probability.size(), first = least(masked, step);
    std::vector<size_t> order(masked);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probability[a] > probability[b]; });
    std::vector<char> accepted(masked, 0);
    for (size_t i = 0; i < masked; i++)
        accepted[order[i]] = i < first || double(probability[order[i]]) > threshold;
    return accepted;
}

} // namespace clover

#include "decode/renoise.h"

#include <algorithm>
#include <numeric>

namespace clover {

std::vector<char> RenoisePolicy::accept(const std::vector<double> &entropy) const {
    std::vector<size_t> order(entropy.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return entropy[a] < entropy[b]; });
    std::vector<char> accepted(entropy.size(), 0);
    double before = 0;
    for (size_t i : order) {
        if (before > entropy_bound)
            break;
        accepted[i] = 1;
        before += entropy[i];
    }
    return accepted;
}

bool Stability::settled(const RenoisePolicy &policy, const std::vector<int> &best, const std::vector<double> &entropy) {
    unchanged_ = best == last_ ? unchanged_ + 1 : 0;
    last_ = best;
    const double mean = std::accumulate(entropy.begin(), entropy.end(), 0.0) / double(entropy.size());
    return unchanged_ >= policy.stability_threshold && mean < policy.confidence_threshold;
}

} // namespace clover

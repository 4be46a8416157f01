#include "decode/renoise.h"

#include <numeric>

#include "decode/strategy.h"

namespace clover {

std::vector<char> RenoisePolicy::accept(const std::vector<double> &entropy) const {
    return accept_by_entropy(entropy, entropy_bound, 1);
}

bool Stability::settled(const RenoisePolicy &policy, const std::vector<int> &best, const std::vector<double> &entropy) {
    unchanged_ = best == last_ ? unchanged_ + 1 : 0;
    last_ = best;
    const double mean = std::accumulate(entropy.begin(), entropy.end(), 0.0) / double(entropy.size());
    return unchanged_ >= policy.stability_threshold && mean < policy.confidence_threshold;
}

} // namespace clover

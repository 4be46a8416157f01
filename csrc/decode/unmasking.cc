#include "decode/unmasking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace clover {
namespace {

// What ranks a position. Adding Gumbel noise draws without replacement.
double rank_of(const UnmaskPolicy &policy, const Pick &pick, double u) {
    if (policy.confidence == Confidence::random)
        return u;
    if (policy.confidence_temperature == 0)
        return pick.confidence;
    return pick.confidence / policy.confidence_temperature - std::log(-std::log(std::max(u, 0x1p-53)));
}

} // namespace

double UnmaskPolicy::share(int step) const {
    const double fall = (1 - eps) / base.steps, t = 1 - fall * step;
    return step >= base.steps - 1 ? 1 : fall / t;
}

size_t UnmaskPolicy::scheduled(size_t masked, int step) const { return size_t(double(masked) * share(step)); }

bool UnmaskPolicy::idle(const std::vector<double> &u, int step) const {
    if (eps == 0)
        return false;
    if (confidence == Confidence::random)
        return std::none_of(u.begin(), u.end(), [&](double x) { return x < share(step); });
    return scheduled(u.size(), step) == 0;
}

std::vector<char> UnmaskPolicy::accept(const std::vector<Pick> &picks, const std::vector<double> &u, int step) const {
    const size_t masked = picks.size();
    std::vector<char> accepted(masked, 0);
    if (eps > 0 && confidence == Confidence::random) {
        std::transform(u.begin(), u.end(), accepted.begin(), [&](double x) { return x < share(step); });
        return accepted;
    }
    std::vector<float> probability;
    std::vector<double> rank, entropy;
    for (size_t i = 0; i < masked; i++) {
        probability.push_back(picks[i].probability);
        entropy.push_back(-picks[i].confidence);
        rank.push_back(rank_of(*this, picks[i], u[i]));
    }
    if (plain())
        return strategy.accept(base, probability, entropy, step);
    std::vector<size_t> order(masked);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] > rank[b]; });
    const size_t least = eps > 0 ? scheduled(masked, step) : base.least(masked, step);
    for (size_t i = 0; i < masked; i++)
        accepted[order[i]] = i < least || (eps == 0 && double(probability[order[i]]) > base.threshold);
    return accepted;
}

} // namespace clover

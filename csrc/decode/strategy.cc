#include "decode/strategy.h"

#include <algorithm>
#include <numeric>

namespace clover {
namespace {

// Indices by `better`, equals in their own order.
template <class Better> std::vector<size_t> sorted(size_t n, Better better) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), better);
    return order;
}

std::vector<char> first_of(const std::vector<size_t> &order, size_t count) {
    std::vector<char> accepted(order.size(), 0);
    for (size_t i = 0; i < std::min(count, order.size()); i++)
        accepted[order[i]] = 1;
    return accepted;
}

} // namespace

std::vector<char> StrategyPolicy::accept(const ThresholdPolicy &base, const std::vector<float> &probability,
                                         const std::vector<double> &entropy, int step) const {
    if (plain())
        return base.accept(probability, step);
    const size_t masked = probability.size(), least = base.least(masked, step);
    if (strategy == Strategy::entropy_bounded)
        return accept_by_entropy(entropy, entropy_bound, least);
    if (strategy == Strategy::sequential)
        return first_of(sorted(masked, std::less<size_t>()), least);
    const auto order = sorted(masked, [&](size_t a, size_t b) { return probability[a] > probability[b]; });
    size_t count = least;
    while (factor > 0 && count < masked && double(probability[order[count]]) >= 1 - factor / double(count + 2))
        count++;
    return first_of(order, count);
}

std::vector<char> accept_by_entropy(const std::vector<double> &entropy, double bound, size_t least) {
    const auto order = sorted(entropy.size(), [&](size_t a, size_t b) { return entropy[a] < entropy[b]; });
    size_t count = 0;
    for (double before = 0; count < order.size() && (count < least || before <= bound); count++)
        before += entropy[order[count]];
    return first_of(order, count);
}

} // namespace clover

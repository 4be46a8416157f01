#include "decode/credit.h"

#include <algorithm>
#include <cmath>

namespace clover {

std::vector<Pick> Credit::pick(HeadPass &head, const std::vector<int64_t> &positions) {
    for (auto &[position, tokens] : earned_)
        for (auto &[id, credit] : tokens)
            credit *= kKept;
    std::vector<HeadPass::Visit> visits; // to the stripes of tokens that have credit
    for (int row = 0; row < head.rows(); row++) {
        std::map<int, double> &tokens = earned_[positions[size_t(row)]];
        tokens[head.total(row).argmax] += std::pow(1 / double(head.total(row).sum_exp), kPower);
        for (const auto &[id, credit] : tokens) {
            const int stripe = id / kHeadStripe;
            if (visits.empty() || visits.back().row != row || visits.back().stripe != stripe)
                visits.push_back({stripe, row});
        }
    }
    std::stable_sort(visits.begin(), visits.end(), [](const auto &a, const auto &b) { return a.stripe < b.stripe; });
    std::vector<std::vector<std::pair<int, double>>> found(visits.size()); // (id, logit)
    head.visit(visits, [&](size_t visit, int first_id, const float *logits, int count) {
        const std::map<int, double> &tokens = earned_.at(positions[size_t(visits[visit].row)]);
        for (auto at = tokens.lower_bound(first_id); at != tokens.end() && at->first < first_id + count; ++at)
            found[visit].push_back({at->first, logits[at->first - first_id]});
    });
    // Only tokens with credit gain; the leader is among them, so the best of them is the best of all.
    std::vector<Pick> picks(size_t(head.rows()), Pick{-1, 0});
    std::vector<double> best(picks.size()), sum;
    for (int row = 0; row < head.rows(); row++)
        sum.push_back(head.total(row).sum_exp);
    for (size_t v = 0; v < visits.size(); v++) {
        const size_t row = size_t(visits[v].row);
        const double top = head.total(visits[v].row).max;
        for (const auto &[id, logit] : found[v]) {
            const double raised = logit - top + weight_ * std::log1p(earned_.at(positions[row]).at(id));
            sum[row] += std::exp(raised) - std::exp(logit - top);
            Pick &pick = picks[row];
            if (pick.id < 0 || raised > best[row] || (raised == best[row] && id < pick.id)) {
                pick.id = id;
                best[row] = raised;
            }
        }
    }
    for (size_t row = 0; row < picks.size(); row++)
        picks[row].probability = float(std::exp(best[row]) / sum[row]);
    return picks;
}

} // namespace clover

// How sure the model is of whole rows. The pass over the head has kept every stripe's best logit and sum; what they do
// not say is read from stripes' logits.
#include <algorithm>
#include <cmath>

#include "decode/sampling.h"

namespace clover {
namespace {

// Stripes of all rows that hold real tokens, in the order that a visit asks for; or of each row the best one.
std::vector<HeadPass::Visit> stripes_of(const HeadPass &head, bool best) {
    std::vector<HeadPass::Visit> visits;
    for (int stripe = 0; stripe < head.stripes(); stripe++)
        for (int row = 0; row < head.rows(); row++) {
            const int id = head.part(stripe, row).argmax;
            if (id >= 0 && (!best || id == head.total(row).argmax))
                visits.push_back({stripe, row});
        }
    return visits;
}

// (logit - max) / temperature
double scaled(const HeadPass &head, int row, float logit) {
    return double(logit - head.total(row).max) * head.rule().inverse_temperature;
}

// p of the likeliest token less p of the next: the best of another stripe, or the second of its own.
void add_margins(HeadPass &head, std::vector<Pick> &picks) {
    const std::vector<HeadPass::Visit> visits = stripes_of(head, true);
    head.visit(visits, [&](size_t visit, int first_id, const float *logits, int count) {
        const int row = visits[visit].row, best = head.total(row).argmax;
        float next = -HUGE_VALF;
        for (int stripe = 0; stripe < head.stripes(); stripe++)
            if (head.part(stripe, row).argmax != best)
                next = std::max(next, head.part(stripe, row).max);
        for (int i = 0; i < count; i++)
            if (first_id + i != best)
                next = std::max(next, logits[i]);
        picks[size_t(row)].confidence = float((1 - std::exp(scaled(head, row, next))) / head.total(row).sum_exp);
    });
}

// With p = e^z / Z the sum of p ln p is the sum of e^z z / Z, less ln Z.
void add_entropies(HeadPass &head, std::vector<Pick> &picks) {
    const std::vector<HeadPass::Visit> visits = stripes_of(head, false);
    std::vector<double> sums(visits.size(), 0); // by stripe, so that threads change no bit
    head.visit(visits, [&](size_t visit, int, const float *logits, int count) {
        for (int i = 0; i < count; i++)
            if (logits[i] > -HUGE_VALF) {
                const double z = scaled(head, visits[visit].row, logits[i]);
                sums[visit] += std::exp(z) * z;
            }
    });
    std::vector<double> rows(picks.size(), 0);
    for (size_t i = 0; i < visits.size(); i++)
        rows[size_t(visits[i].row)] += sums[i];
    for (size_t row = 0; row < picks.size(); row++) {
        const double z = head.total(int(row)).sum_exp;
        picks[row].confidence = float(rows[row] / z - std::log(z));
    }
}

} // namespace

void add_confidence(HeadPass &head, Confidence measure, std::vector<Pick> &picks) {
    measure == Confidence::margin ? add_margins(head, picks) : add_entropies(head, picks);
}

} // namespace clover

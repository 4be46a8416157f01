#include "decode/constraint.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace clover {
namespace {

struct Weighed {
    Candidate token;
    double weight; // exp((logit - max) / temperature)
};

// Whether a stripe has any allowed id.
bool any_allowed(const uint32_t *allowed, int stripe, int valid) {
    static_assert(kHeadStripe % 32 == 0, "a stripe is whole words of bits");
    constexpr int words = kHeadStripe / 32;
    const uint32_t *first = allowed + stripe * words;
    return std::any_of(first, allowed + std::min((stripe + 1) * words, (valid + 31) / 32),
                       [](uint32_t bits) { return bits != 0; });
}

// The allowed ids of a row, ascending, and their weights; the largest is 1.
std::vector<Weighed> weigh(HeadPass &head, int row, const uint32_t *allowed) {
    const int valid = head.rule().valid;
    std::vector<HeadPass::Visit> visits;
    for (int stripe = 0; stripe < head.stripes(); stripe++)
        if (any_allowed(allowed, stripe, valid))
            visits.push_back({stripe, row});
    std::vector<std::vector<Candidate>> found(visits.size());
    head.visit(visits, [&](size_t visit, int first_id, const float *logits, int count) {
        for (int i = 0; i < count; i++)
            if (is_allowed(allowed, first_id + i) && logits[i] > -HUGE_VALF)
                found[visit].push_back({first_id + i, logits[i]});
    });
    std::vector<Weighed> weighed;
    float max = -HUGE_VALF;
    for (const auto &stripe : found)
        for (const Candidate &each : stripe) {
            weighed.push_back({each, 0});
            max = std::max(max, each.logit);
        }
    if (weighed.empty())
        throw Error("constraint: allows no token");
    for (Weighed &each : weighed)
        each.weight = std::exp(double(each.token.logit - max) * head.rule().inverse_temperature);
    return weighed;
}

double sum(const std::vector<Weighed> &tokens) {
    double sum = 0;
    for (const Weighed &each : tokens)
        sum += each.weight;
    return sum;
}

// Leaves the top_k most probable, and of these the fewest that reach top_p.
void cut(std::vector<Weighed> &tokens, const SamplingOptions &o) {
    std::sort(tokens.begin(), tokens.end(), [](const Weighed &a, const Weighed &b) {
        return a.token.logit != b.token.logit ? a.token.logit > b.token.logit : a.token.id < b.token.id;
    });
    if (o.top_k > 0)
        tokens.resize(std::min(tokens.size(), size_t(o.top_k)));
    const double wanted = o.top_p * sum(tokens);
    size_t size = 0;
    for (double reached = 0; size == 0 || (o.top_p < 1 && size < tokens.size() && reached < wanted); size++)
        reached += tokens[size].weight;
    if (o.top_p < 1)
        tokens.resize(size);
}

// Where a walk along the weights has used up its share `u` of them all.
const Weighed &walk(const std::vector<Weighed> &tokens, double u, double all) {
    double left = u * all;
    const Weighed *at = nullptr;
    for (const Weighed &each : tokens) {
        if (each.weight <= 0)
            continue;
        at = &each;
        left -= each.weight;
        if (left < 0)
            break;
    }
    return *at; // the largest weight is 1
}

} // namespace

int only_allowed(const uint32_t *allowed, int end) {
    int only = -1;
    for (int word = 0; word * 32 < end; word++) {
        uint32_t bits = allowed[word];
        if (bits == 0)
            continue;
        if (only >= 0 || (bits & (bits - 1)))
            return -1;
        int bit = 0;
        while (!(bits >> bit & 1))
            bit++;
        only = word * 32 + bit;
    }
    return only < end ? only : -1;
}

Pick pick_allowed(HeadPass &head, int row, const uint32_t *allowed, const SamplingOptions &o, const Pick &free,
                  double u) {
    std::vector<Weighed> tokens = weigh(head, row, allowed);
    if (o.cuts())
        cut(tokens, o);
    const double all = sum(tokens);
    const Weighed *pick = nullptr;
    if (!o.cuts() && is_allowed(allowed, free.id))
        for (const Weighed &each : tokens)
            pick = each.token.id == free.id ? &each : pick;
    if (!pick && o.temperature > 0)
        pick = &walk(tokens, u, all);
    if (!pick)
        pick = &*std::max_element(tokens.begin(), tokens.end(), [](const Weighed &a, const Weighed &b) {
            return a.token.logit < b.token.logit; // the first of equals
        });
    return {pick->token.id, float(pick->weight / all)};
}

} // namespace clover

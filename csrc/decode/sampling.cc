#include "decode/sampling.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

struct Candidate {
    int id;
    double weight; // exp((logit - best) / temperature)
};

bool before(const Candidate &a, const Candidate &b) { return a.weight != b.weight ? a.weight > b.weight : a.id < b.id; }

uint64_t mix(uint64_t x) { // splitmix64's finaliser
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void penalise(float *logits, const SamplingOptions &o, const Occurrences &seen) {
    for (const auto &[id, count] : seen) {
        double x = logits[id];
        x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
        logits[id] = float(x - o.frequency_penalty * count - o.presence_penalty);
    }
}

int best_id(const float *logits, const Spec &s) {
    int best = s.mask_token_id == 0 ? 1 : 0;
    for (int id = best + 1; id < s.valid_vocab; id++)
        if (id != s.mask_token_id && logits[id] > logits[best])
            best = id;
    return best;
}

double total(const std::vector<Candidate> &c) {
    double sum = 0;
    for (const Candidate &x : c)
        sum += x.weight;
    return sum;
}

void keep_top_k(std::vector<Candidate> &c, int k) {
    if (k <= 0 || size_t(k) >= c.size())
        return;
    std::nth_element(c.begin(), c.begin() + (k - 1), c.end(), before);
    c.resize(size_t(k));
    std::sort(c.begin(), c.end(), before); // an order that no library's nth_element decides
}

// The smallest set of best candidates whose share reaches p, best first. Sorts no more than it needs: the
// set is usually a handful out of a large vocabulary.
void keep_top_p(std::vector<Candidate> &c, double p) {
    const double wanted = p * total(c);
    double sum = 0;
    size_t done = 0;
    for (size_t next = std::min<size_t>(64, c.size());; next = std::min(next * 8, c.size())) {
        const auto from = c.begin() + std::ptrdiff_t(done), to = c.begin() + std::ptrdiff_t(next);
        if (next < c.size())
            std::nth_element(from, to, c.end(), before);
        std::sort(from, to, before);
        for (; done < next; done++) {
            sum += c[done].weight;
            if (sum >= wanted) {
                c.resize(done + 1);
                return;
            }
        }
        if (next == c.size())
            return;
    }
}

} // namespace

double uniform(uint64_t seed, int64_t position, int step) {
    const uint64_t bits = mix(mix(mix(seed) ^ uint64_t(position)) ^ uint64_t(step));
    return double(bits >> 11) * 0x1p-53;
}

Pick pick(float *logits, const Spec &s, const SamplingOptions &o, const Occurrences &seen, double u) {
    if (o.penalties())
        penalise(logits, o, seen);
    const int best = best_id(logits, s);
    const double temperature = o.temperature > 0 ? o.temperature : 1;
    std::vector<Candidate> c;
    c.reserve(size_t(s.valid_vocab));
    for (int id = 0; id < s.valid_vocab; id++)
        if (id != s.mask_token_id)
            c.push_back({id, std::exp((double(logits[id]) - logits[best]) / temperature)});
    if (o.temperature <= 0)
        return {best, float(1 / total(c))};
    keep_top_k(c, o.top_k);
    if (o.top_p < 1)
        keep_top_p(c, o.top_p);
    const double sum = total(c);
    double left = u * sum;
    size_t i = 0;
    while (i + 1 < c.size() && left >= c[i].weight)
        left -= c[i++].weight;
    return {c[i].id, float(c[i].weight / sum)};
}

} // namespace clover

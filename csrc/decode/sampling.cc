#include "decode/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace clover {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int kFirstStripes = 8; // that a row looks at in its first round; four times as many in each further one

bool before(const Candidate &a, const Candidate &b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

uint64_t mix(uint64_t x) { // splitmix64's finaliser
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// exp((logit - max) / temperature)
double weight(const HeadPass &head, int row, float logit) {
    return std::exp(double(logit - head.total(row).max) * head.rule().inverse_temperature);
}

// Where a walk along weights has used up what it was given, else the last one that has any weight.
struct Walk {
    double left;
    int at = -1;
    double weight = 0; // of `at`

    // False: the walk ends here.
    bool pass(int i, double w) {
        if (w > 0) {
            at = i;
            weight = w;
            left -= w;
        }
        return left >= 0;
    }
};

// Draws from all real tokens: first a stripe by its weight, then one of its ids.
std::vector<Pick> draw_from_all(HeadPass &head, const std::vector<double> &u) {
    std::vector<HeadPass::Visit> visits;
    std::vector<Walk> walks;
    for (int row = 0; row < head.rows(); row++) {
        Walk stripes{u[size_t(row)] * head.total(row).sum_exp};
        double behind = stripes.left;
        for (int s = 0; s < head.stripes(); s++) {
            const HeadStats &part = head.part(s, row);
            const double w = part.argmax < 0 ? 0 : part.sum_exp * weight(head, row, part.max);
            if (w > 0)
                behind = stripes.left;
            if (!stripes.pass(s, w))
                break;
        }
        visits.push_back({stripes.at, row});
        walks.push_back({behind});
    }
    const auto by_stripe = [](const auto &a, const auto &b) { return a.stripe < b.stripe; };
    std::stable_sort(visits.begin(), visits.end(), by_stripe);
    std::vector<Pick> picks(size_t(head.rows()));
    head.visit(visits, [&](size_t visit, int first_id, const float *logits, int count) {
        const int row = visits[visit].row;
        Walk ids = walks[size_t(row)];
        for (int i = 0; i < count && ids.pass(first_id + i, weight(head, row, logits[i])); i++) {
        }
        picks[size_t(row)] = {ids.at, float(ids.weight / head.total(row).sum_exp)};
    });
    return picks;
}

// The best tokens of one row, found in the stripes with the largest maxima.
class Best {
  public:
    Best(const HeadPass &head, const SamplingOptions &o, int row) : head_(head), o_(o), row_(row) {
        stripes_.resize(size_t(head.stripes()));
        std::iota(stripes_.begin(), stripes_.end(), 0);
        std::make_heap(stripes_.begin(), stripes_.end(), Behind{this});
    }

    int row() const { return row_; }
    bool done() const { return done_; }

    // The stripes of the next round.
    void wish(std::vector<HeadPass::Visit> &visits) {
        for (size_t i = 0; i < batch_ && !stripes_.empty(); i++) {
            std::pop_heap(stripes_.begin(), stripes_.end(), Behind{this});
            visits.push_back({stripes_.back(), row_});
            stripes_.pop_back();
        }
        batch_ *= 4;
    }

    void add(const std::vector<Candidate> &candidates) {
        open_.insert(open_.end(), candidates.begin(), candidates.end());
    }

    // After a round: what no unseen token can precede is kept, best first, until it is enough.
    void settle() {
        const float bound = stripes_.empty() ? kLowest : max_of(stripes_.front());
        const auto sure =
            std::partition(open_.begin(), open_.end(), [&](const Candidate &c) { return c.logit > bound; });
        // Enough is usually a handful: no more is put in order than it takes.
        std::ptrdiff_t length = 64;
        for (auto from = open_.begin(); from != sure && !enough(); length *= 8) {
            const auto to = from + std::min(length, sure - from);
            if (to != sure)
                std::nth_element(from, to, sure, before);
            std::sort(from, to, before);
            for (; from != to && !enough(); from++)
                keep(*from);
        }
        open_.erase(open_.begin(), sure);
        done_ = enough() || stripes_.empty();
    }

    std::vector<Candidate> tokens() const {
        std::vector<Candidate> tokens;
        for (const Kept &kept : kept_)
            tokens.push_back(kept.token);
        return tokens;
    }

    Pick draw(double u, Confidence measure) {
        if (o_.top_k > 0 && o_.top_p < 1)
            cut();
        Walk walk{u * reached_};
        for (size_t i = 0; i < kept_.size() && walk.pass(int(i), kept_[i].weight); i++) {
        }
        Pick pick{kept_[size_t(walk.at)].token.id, float(walk.weight / reached_)};
        if (measure == Confidence::margin)
            pick.confidence = float((kept_[0].weight - (kept_.size() > 1 ? kept_[1].weight : 0)) / reached_);
        for (size_t i = 0; measure == Confidence::entropy && i < kept_.size(); i++)
            if (kept_[i].weight > 0)
                pick.confidence += float(kept_[i].weight / reached_ * std::log(kept_[i].weight / reached_));
        return pick;
    }

  private:
    struct Behind { // the heap's order
        const Best *row;
        bool operator()(int a, int b) const { return row->max_of(a) < row->max_of(b); }
    };

    float max_of(int stripe) const { return head_.part(stripe, row_).max; }

    // Top-p counts from what top-k left, where both are asked for.
    bool enough() const {
        return o_.top_k > 0 ? kept_.size() >= size_t(o_.top_k)
                            : !kept_.empty() && reached_ >= o_.top_p * head_.total(row_).sum_exp;
    }

    void keep(const Candidate &c) {
        kept_.push_back({c, weight(head_, row_, c.logit)});
        reached_ += kept_.back().weight;
    }

    void cut() {
        const double wanted = o_.top_p * reached_;
        size_t size = 0;
        for (reached_ = 0; size == 0 || (size < kept_.size() && reached_ < wanted); size++)
            reached_ += kept_[size].weight;
        kept_.resize(size);
    }

    struct Kept {
        Candidate token;
        double weight;
    };

    const HeadPass &head_;
    const SamplingOptions &o_;
    int row_;
    std::vector<int> stripes_; // not yet looked at: a heap, the largest maximum in front
    size_t batch_ = kFirstStripes;
    std::vector<Candidate> open_; // of stripes that were looked at, in no order
    std::vector<Kept> kept_;      // best first
    double reached_ = 0;          // their weights together
    bool done_ = false;
};

// Looks at stripes until each of `rows` has its best tokens.
void gather(HeadPass &head, std::vector<Best> &rows) {
    std::vector<size_t> at(size_t(head.rows())); // of a row of the pass
    for (size_t i = 0; i < rows.size(); i++)
        at[size_t(rows[i].row())] = i;
    for (;;) {
        std::vector<HeadPass::Visit> visits;
        for (Best &row : rows)
            if (!row.done())
                row.wish(visits);
        if (visits.empty())
            return;
        std::sort(visits.begin(), visits.end(), [](const auto &a, const auto &b) {
            return a.stripe != b.stripe ? a.stripe < b.stripe : a.row < b.row;
        });
        std::vector<std::vector<Candidate>> found(visits.size());
        head.visit(visits, [&](size_t visit, int first_id, const float *logits, int count) {
            found[visit].reserve(size_t(count));
            for (int i = 0; i < count; i++)
                if (logits[i] > kLowest)
                    found[visit].push_back({first_id + i, logits[i]});
        });
        for (size_t i = 0; i < visits.size(); i++)
            rows[at[size_t(visits[i].row)]].add(found[i]);
        head.pool().run(int64_t(rows.size()), [&](int64_t row, int) {
            if (!rows[size_t(row)].done())
                rows[size_t(row)].settle();
        });
    }
}

std::vector<Pick> draw_from_best(HeadPass &head, const SamplingOptions &o, const std::vector<double> &u,
                                 Confidence measure) {
    std::vector<Best> rows;
    for (int row = 0; row < head.rows(); row++)
        rows.emplace_back(head, o, row);
    gather(head, rows);
    std::vector<Pick> picks;
    for (int row = 0; row < head.rows(); row++)
        picks.push_back(rows[size_t(row)].draw(u[size_t(row)], measure));
    return picks;
}

} // namespace

double uniform(uint64_t seed, int64_t position, int step) {
    const uint64_t bits = mix(mix(mix(seed) ^ uint64_t(position)) ^ uint64_t(step));
    return double(bits >> 11) * 0x1p-53;
}

HeadRule head_rule(const SamplingOptions &o, const Occurrences &seen, std::vector<HeadRule::Penalty> &penalties) {
    HeadRule rule{};
    if (o.temperature > 0) // bounded, so that 0 / temperature stays 0
        rule.inverse_temperature = float(std::min(1 / o.temperature, double(std::numeric_limits<float>::max())));
    penalties.clear();
    if (o.penalties())
        for (const auto &[id, count] : seen)
            if (count > 0) // an edit may have taken the last one away
                penalties.push_back({id, float(o.frequency_penalty * count + o.presence_penalty)});
    std::sort(penalties.begin(), penalties.end(), [](const auto &a, const auto &b) { return a.id < b.id; });
    rule.repetition = float(o.repetition_penalty);
    rule.penalties = penalties.data();
    rule.penalty_count = int(penalties.size());
    return rule;
}

std::vector<Pick> pick(HeadPass &head, const SamplingOptions &o, const std::vector<double> &u) {
    return pick(head, o, u, Confidence::random); // which asks for nothing
}

std::vector<Pick> pick(HeadPass &head, const SamplingOptions &o, const std::vector<double> &u, Confidence measure) {
    const bool best = o.cuts();
    std::vector<Pick> picks;
    if (o.temperature > 0)
        picks = best ? draw_from_best(head, o, u, measure) : draw_from_all(head, u);
    else
        for (int row = 0; row < head.rows(); row++)
            picks.push_back({head.total(row).argmax, 1 / head.total(row).sum_exp});
    if (measure == Confidence::probability)
        for (Pick &each : picks)
            each.confidence = each.probability;
    else if (!best && measure != Confidence::random)
        add_confidence(head, measure, picks);
    return picks;
}

std::vector<std::vector<Candidate>> best_of(HeadPass &head, const std::vector<int> &rows, int count) {
    SamplingOptions top;
    top.top_k = count;
    std::vector<Best> wanted;
    for (int row : rows)
        wanted.emplace_back(head, top, row);
    gather(head, wanted);
    std::vector<std::vector<Candidate>> best;
    for (const Best &row : wanted) {
        best.push_back(row.tokens());
        best.back().resize(std::min(best.back().size(), size_t(count)));
    }
    return best;
}

} // namespace clover

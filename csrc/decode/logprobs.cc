#include "decode/logprobs.h"

#include <algorithm>
#include <numeric>

#include "decode/decoder.h"

namespace clover {
namespace {

bool plain(const HeadRule &rule) {
    return rule.penalty_count == 0 && rule.repetition == 1 && rule.inverse_temperature == 1;
}

} // namespace

std::vector<LogProb> log_probs(HeadPass &head, const std::vector<int> &rows, const std::vector<int> &ids, int top) {
    struct Wanted {
        HeadPass::Visit visit;
        size_t index;
    };
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < rows.size(); i++)
        wanted.push_back({{ids[i] / kHeadStripe, rows[i]}, i});
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const Wanted &a, const Wanted &b) { return a.visit.stripe < b.visit.stripe; });
    std::vector<HeadPass::Visit> visits;
    for (const Wanted &each : wanted)
        visits.push_back(each.visit);
    const auto log_p = [&head](int row, float logit) {
        return float(double(logit - head.total(row).max) - std::log(double(head.total(row).sum_exp)));
    };
    std::vector<LogProb> found(rows.size());
    head.visit(visits, [&](size_t visit, int first_id, const float *logits, int) {
        const size_t i = wanted[visit].index;
        found[i].value = log_p(rows[i], logits[ids[i] - first_id]);
    });
    if (top == 0)
        return found;
    std::vector<std::vector<Candidate>> best = best_of(head, rows, top);
    for (size_t i = 0; i < rows.size(); i++) {
        for (Candidate &each : best[i])
            each.logit = log_p(rows[i], each.logit);
        found[i].top = std::move(best[i]);
    }
    return found;
}

// The pass that picked them serves where its rule is plain; else the accepted rows read the head once more.
void Decoder::note(const float *hidden, const std::vector<int> &rows, const std::vector<int64_t> &places,
                   const std::vector<int> &ids) {
    if (o_.logprobs < 0 || rows.empty())
        return;
    std::vector<int> index;
    if (last_ && last_->hidden == hidden && plain(last_->head.rule()))
        for (int row : rows) {
            const auto at = std::find(last_->rows.begin(), last_->rows.end(), row);
            if (at != last_->rows.end())
                index.push_back(int(at - last_->rows.begin()));
        }
    if (index.size() == rows.size())
        return keep(log_probs(last_->head, index, ids, o_.logprobs), places);
    const size_t most = size_t(m_.scratch.rows()); // statistics of a canvas's rows may be many
    for (size_t at = 0; at < rows.size(); at += most) {
        const auto from = std::ptrdiff_t(at), to = std::ptrdiff_t(std::min(rows.size(), at + most));
        HeadPass head = head_pass(m_, hidden, {rows.begin() + from, rows.begin() + to}, HeadRule{});
        index.resize(size_t(to - from));
        std::iota(index.begin(), index.end(), 0);
        keep(log_probs(head, index, {ids.begin() + from, ids.begin() + to}, o_.logprobs),
             {places.begin() + from, places.begin() + to});
    }
}

void Decoder::keep(std::vector<LogProb> found, const std::vector<int64_t> &places) {
    for (size_t i = 0; i < found.size(); i++)
        noted_[places[i]] = std::move(found[i]);
}

// Those of the next `count` tokens of the text.
std::vector<LogProb> Decoder::take_noted(int64_t count) {
    std::vector<LogProb> taken;
    const int64_t first = int64_t(result_.ids.size());
    for (int64_t i = first; o_.logprobs >= 0 && i < first + count; i++)
        taken.push_back(noted_.count(i) ? std::move(noted_[i]) : LogProb{});
    noted_.erase(noted_.begin(), noted_.lower_bound(first + count));
    return taken;
}

} // namespace clover

#include "decode/indel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace clover {
namespace {

bool any(const std::vector<char> &flags) { return std::find(flags.begin(), flags.end(), 1) != flags.end(); }

} // namespace

IndelBlock::IndelBlock(const IndelPolicy &policy, std::size_t width)
    : policy_(policy), started_(width, 1), tried_(width) {}

std::vector<char> IndelBlock::step(std::vector<int> &block, const Look &look) {
    std::vector<Best> best = proposals(block, look);
    std::vector<char> write = masks_to_fill(block, best);
    const bool last = must_finish(block, write);
    if (last)
        clean(best, look);
    for (size_t i = 0; i < block.size(); i++) {
        if (block[i] == policy_.mask)
            write[i] |= last;
        else
            write[i] = policy_.editing.replaces(block[i], best[i].id, best[i].probability);
    }
    done_ = last || !any(write);
    if (!any(write))
        return write;
    if (!last && seen_.count(block))
        leave_loop(block, write, best, look);
    seen_.insert(block);
    std::vector<int> written = block;
    for (size_t i = 0; i < block.size(); i++) {
        if (!write[i])
            continue;
        written[i] = best[i].id;
        tried_[i].insert(best[i].id);
    }
    obey(block, written);
    return write;
}

IndelBlock::Count IndelBlock::count(const std::vector<int> &block) const {
    Count count;
    for (size_t i = 0; i < block.size(); i++) {
        count.all += block[i] == policy_.mask;
        count.started += block[i] == policy_.mask && started_[i];
    }
    return count;
}

// The best token of every position; a mask that the block started with is no answer to itself.
std::vector<IndelBlock::Best> IndelBlock::proposals(const std::vector<int> &block, const Look &look) const {
    std::vector<int> positions(block.size()), again;
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<Best> best = look(positions, {});
    for (int i : positions)
        if (started_[size_t(i)] && block[size_t(i)] == policy_.mask && best[size_t(i)].id == policy_.mask)
            again.push_back(i);
    if (again.empty())
        return best;
    const std::vector<Best> others = look(again, {policy_.mask});
    for (size_t k = 0; k < again.size(); k++) {
        Best &b = best[size_t(again[k])];
        b = {others[k].id, others[k].logit, b.probability * std::exp(others[k].logit - b.logit)};
    }
    return best;
}

// While masks of the start are left: those above the threshold, or one more than commands brought in, the most
// probable. Later all.
std::vector<char> IndelBlock::masks_to_fill(const std::vector<int> &block, const std::vector<Best> &best) const {
    const Count masks = count(block);
    const int needed = 1 + masks.all - masks.started;
    std::vector<size_t> order;
    int above = 0;
    for (size_t i = 0; i < block.size(); i++) {
        if (block[i] != policy_.mask)
            continue;
        order.push_back(i);
        above += double(best[i].probability) > policy_.threshold;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return best[a].probability > best[b].probability; });
    if (masks.started > 0)
        order.resize(size_t(std::min(masks.all, std::max(needed, above))));
    std::vector<char> filled(block.size(), 0);
    for (size_t i : order)
        filled[i] = 1;
    return filled;
}

// Whether this step, which fills `filled`, is the last: it counts steps.
bool IndelBlock::must_finish(const std::vector<int> &block, const std::vector<char> &filled) {
    const int most = policy_.editing.max_post_steps;
    const bool started = count(block).started > 0;
    steps_++;
    post_steps_ += !started;
    bool left = false; // a mask of the start stays
    for (size_t i = 0; i < block.size(); i++)
        left |= started_[i] && block[i] == policy_.mask && !filled[i];
    return (!started && post_steps_ >= most) || (most == 0 && !left) || steps_ > int(block.size()) + most;
}

// Neither masks nor commands are proposed.
void IndelBlock::clean(std::vector<Best> &best, const Look &look) const {
    const std::vector<int> banned = {policy_.mask, policy_.remove, policy_.split};
    std::vector<int> positions;
    for (size_t i = 0; i < best.size(); i++)
        if (std::find(banned.begin(), banned.end(), best[i].id) != banned.end())
            positions.push_back(int(i));
    if (positions.empty())
        return;
    const std::vector<Best> others = look(positions, banned);
    for (size_t k = 0; k < positions.size(); k++)
        best[size_t(positions[k])].id = others[k].id;
}

// The block was here before: where it changes and is least sure, it takes the best token that was not tried there.
void IndelBlock::leave_loop(const std::vector<int> &block, const std::vector<char> &written, std::vector<Best> &best,
                            const Look &look) const {
    int at = -1;
    for (int i = 0; i < int(block.size()); i++) {
        const size_t k = size_t(i);
        if (written[k] && best[k].id != block[k] && (at < 0 || best[k].probability < best[size_t(at)].probability))
            at = i;
    }
    if (at < 0)
        return;
    std::vector<int> banned(tried_[size_t(at)].begin(), tried_[size_t(at)].end());
    if (started_[size_t(at)] && block[size_t(at)] == policy_.mask)
        banned.push_back(policy_.mask);
    best[size_t(at)].id = look({at}, banned)[0].id;
}

// Carries out the commands among the written tokens; what is beyond the width is lost, and masks fill what is short
// of it.
void IndelBlock::obey(std::vector<int> &block, const std::vector<int> &written) {
    std::vector<int> ids;
    std::vector<char> started;
    for (size_t i = 0; i < block.size(); i++) {
        if (written[i] == policy_.remove)
            continue;
        const bool split = written[i] == policy_.split;
        if (split) {
            ids.push_back(policy_.mask);
            started.push_back(0);
        }
        ids.push_back(split ? block[i] : written[i]);
        started.push_back(started_[i]);
    }
    ids.resize(block.size(), policy_.mask);
    started.resize(block.size(), 0);
    block = std::move(ids);
    started_ = std::move(started);
}

} // namespace clover

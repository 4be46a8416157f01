// Going back: marks cost what recurrent layers carry, the rows of the caches stay where they are.
#include <algorithm>

#include "model/grid.h"
#include "model/memory.h"
#include "model/state.h"

namespace clover {
namespace {

int64_t bytes_of(const std::vector<DeltaState> &delta) {
    int64_t sum = 0;
    for (const DeltaState &d : delta)
        sum += d.S.bytes() + d.ring.bytes();
    return sum;
}

Mark copy_of(const Mark &from) {
    Mark to;
    to.position = from.position;
    to.open = from.open;
    to.cut = from.cut;
    to.asked = from.asked;
    copy_delta(from.delta, to.delta);
    to.hidden.assign(from.hidden.data(), from.hidden.size());
    return to;
}

} // namespace

int64_t State::marks_bytes() const {
    int64_t sum = 0;
    for (const Mark &mark : marks)
        sum += bytes_of(mark.delta) + mark.hidden.bytes();
    return sum;
}

void State::mark(bool asked) {
    if (cuttable() || position == 0 || broken)
        return;
    if (!marks.empty() && marks.back().position == position) {
        marks.back().asked |= asked;
        return;
    }
    if (bytes_of(delta) + hidden.bytes() > available_memory())
        return;
    Mark mark;
    mark.position = position;
    mark.open = open;
    mark.cut = cut;
    mark.asked = asked;
    copy_delta(delta, mark.delta);
    mark.hidden.assign(hidden.data(), hidden.size());
    marks.push_back(std::move(mark));
    thin_marks();
}

void State::mark_if_due() {
    const int64_t last = marks.empty() ? 0 : marks.back().position;
    if (marking.every && position - last >= marking.every)
        mark(false);
}

// Marks that nobody asked for go first, then those whose neighbours are close.
void State::thin_marks() {
    while (marks.size() > 1 && marks_bytes() > marking.bytes) {
        size_t worst = 0;
        const auto cost = [this](size_t i) {
            const int64_t before = i ? marks[i - 1].position : 0;
            return std::pair<bool, int64_t>(marks[i].asked, marks[i + 1].position - before);
        };
        for (size_t i = 1; i + 1 < marks.size(); i++)
            if (cost(i) < cost(worst))
                worst = i;
        marks.erase(marks.begin() + std::ptrdiff_t(worst));
    }
}

void State::drop_marks_behind(int64_t at) {
    while (!marks.empty() && marks.back().position > at)
        marks.pop_back();
}

void State::cut_at(int64_t at) {
    if (spec_.full_mask() || (spec_.block_mask() && at > settled())) {
        open.resize(size_t(at - settled()));
        position = at;
    } else {
        open.clear();
        position = spec_.block_mask() ? grid_of(spec_, at).begin(at) : at;
    }
    cut = !spec_.full_mask(); // which has no such row
}

// The state of a mark, cut within its open block where `at` is in front of its end.
void State::take(Mark &mark, int64_t at) {
    if (at < mark.position) {
        mark.open.resize(size_t(at - mark.settled()));
        mark.position = at;
        mark.cut = true;
    }
    copy_delta(mark.delta, delta);
    hidden.assign(mark.hidden.data(), mark.hidden.size());
    position = mark.position;
    open = mark.open;
    cut = mark.cut;
}

void State::rewind(int64_t at) {
    if (at >= position && !broken)
        return;
    at = std::min(at, position);
    auto found = marks.rbegin();
    while (found != marks.rend() && found->settled() > at)
        ++found;
    if (cuttable())
        cut_at(at);
    else if (found != marks.rend())
        take(*found, at);
    else
        position = 0;
    if (position == 0)
        return reset();
    drop_marks_behind(position);
    previewed.clear();
    passes++;
    broken = false;
    drop_rollback();
}

State State::fork(int64_t at) const {
    const int64_t rows = std::clamp<int64_t>(at, 0, settled());
    require_memory("a copy of " + std::to_string(rows) + " tokens", bytes(spec_, format, rows) + marks_bytes());
    State copy(spec_, capacity, format);
    copy.copy_rows(*this, rows);
    copy.copy_point(*this);
    copy.marking = marking;
    for (const Mark &mark : marks)
        if (mark.settled() <= at)
            copy.marks.push_back(copy_of(mark));
    copy.rewind(at);
    return copy;
}

} // namespace clover

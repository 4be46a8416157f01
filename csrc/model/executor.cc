// A pass by an executor: in calls of rows that do the same.
#include "model/executor.h"

#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace clover {
namespace {

// Rows [first, last) of a pass, which see none in front of `first` but as text.
PassCall call_of(const Pass &p, int first, int last, bool commit, bool moves) {
    PassCall call{commit, moves, {}, {}, {}, p.start + first, p.history_width};
    for (int row = first; row < last; row++) {
        call.ids.push_back(p.ids[size_t(row)]);
        call.positions.push_back(p.start + p.place[size_t(row)]);
    }
    for (const Chunk &chunk : p.chunks)
        for (const Span &span : chunk.spans)
            for (int i = 0; i < span.rows; i++) {
                const int row = chunk.row0 + span.row0 + i;
                if (row < first || row >= last)
                    continue;
                call.sees_to.push_back((span.causal ? row + 1 : span.end) - first);
            }
    return call;
}

void run(Pass &p, int first, int last, bool commit, bool moves) {
    if (first == last)
        return;
    const int64_t width = p.model.spec.hidden_size;
    float *hidden = p.model.scratch.h.data() + first * width, *end = hidden + (last - first) * width;
    p.model.executor->forward(call_of(p, first, last, commit, moves), p.state, hidden);
    if (!std::all_of(hidden, end, [](float x) { return std::isfinite(x); }))
        throw Error("the last layer's output is not finite");
}

} // namespace

void Model::require_kernels(const std::string &what) const {
    if (executor)
        throw UnsupportedModel(what + ": is not supported where a backend computes the passes");
}

void execute(Pass &p) {
    // Rows of an open block must not move recurrent states on.
    const int settled = p.model.spec.has(LayerKind::deltanet) ? std::min(p.settled, p.committed) : p.committed;
    run(p, 0, settled, true, true);
    run(p, settled, p.committed, true, false);
    run(p, p.committed, p.total, false, false);
    p.model.counters.rows += p.total;
}

} // namespace clover

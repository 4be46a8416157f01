// Constrained decoding: a rule outside the core says which tokens may come next, and text is accepted from left to
// right.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/sampling.h"

namespace clover {

// What may follow the text that it has been told of. `room`: tokens that the answer has room for, a stop token
// included. Calls may throw; the generation then ends with that error.
class Constraint {
  public:
    Constraint() = default;
    virtual ~Constraint() = default;
    Constraint(const Constraint &) = delete;
    Constraint &operator=(const Constraint &) = delete;

    // The tokens that come next where there is no choice, at most `most`: they are part of the text from now on.
    virtual std::vector<int> force(int64_t most, int64_t room) = 0;
    // A bit for each id that may come next, [(vocab_size + 31) / 32], until the next call. Not asked behind a stop
    // token.
    virtual const uint32_t *allowed() = 0;
    // `id`, which is allowed, comes next, and `room` is left behind it. False: it does not, since what would have to
    // follow has no room; force() then says what comes instead.
    virtual bool advance(int id, int64_t room) = 0;
};

inline bool is_allowed(const uint32_t *allowed, int id) { return allowed[id / 32] >> (id % 32) & 1; }

// The only allowed id below `end`; -1 where there are several or none.
int only_allowed(const uint32_t *allowed, int end);

// One row of a pass over the head among allowed ids: its pick by the options, with the probability that it has among
// them. `free`: what was picked among all ids, and stays where it is allowed and nothing is to be cut off; u, in
// [0, 1), decides a draw. Throws Error where nothing is allowed.
Pick pick_allowed(HeadPass &, int row, const uint32_t *allowed, const SamplingOptions &, const Pick &free, double u);

} // namespace clover

// Where the blocks of a block mask lie.
#pragma once

#include <cstdint>

#include "model/spec.h"

namespace clover {

// Blocks of `width` positions, one of them starting at `origin`; they go on in both directions.
struct BlockGrid {
    int64_t origin;
    int width;

    // Of the block that holds `position`.
    int64_t begin(int64_t position) const {
        const int64_t within = (position - origin) % width;
        return position - (within < 0 ? within + width : within);
    }
    int64_t end(int64_t position) const { return begin(position) + width; }
};

// Of what is computed behind a state: counted from position 0, or such that one block starts or ends at `origin`. Under
// a full mask all positions are one block.
inline BlockGrid grid_of(const Spec &s, int64_t origin) {
    if (s.full_mask())
        return {0, 1 << 30};
    return {s.absolute_blocks() ? 0 : origin, s.block_size};
}

} // namespace clover

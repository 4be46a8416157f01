// What the previews of one block keep from step to step, so that rows need not be computed anew.
#pragma once

#include <cstdint>
#include <vector>

#include "model/buffer.h"

namespace clover {

// Its keys and values stay in the state's working space; what a DeltaNet layer's convolution reads is kept here.
struct Block {
    std::vector<Buffer<float>> M;    // by layer, [n, C] in front of the convolution; empty at attention layers
    std::vector<Buffer<float>> beta; // by layer, [n, Hv]
    // By layer, [E]: the coreset, which the block's first preview fixes; empty before it or where there is none.
    std::vector<std::vector<char>> coreset;
    int rows = 0;      // n; 0: nothing kept
    int64_t pass = -1; // State::passes behind the last preview: what came between has used the working space

    void clear() { *this = Block(); }
};

} // namespace clover

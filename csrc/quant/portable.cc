// Four rows at a time in what every x86-64 and AArch64 processor has.
#include "quant/tables.h"

namespace clover::quant {

namespace {

constexpr int kLanes = 4;

#include "quant/lanes.h"

inline F root(F x) {
    for (int i = 0; i < kLanes; ++i)
        x[i] = __builtin_sqrtf(x[i]);
    return x;
}

inline F pick(const float (&table)[16], I index) {
    F out;
    for (int i = 0; i < kLanes; ++i)
        out[i] = table[index[i]];
    return out;
}

struct Search {
    explicit Search(const Levels &levels) {
        for (int i = 0; i < 15; ++i)
            borders[i] = all(levels.borders[i + 1]);
    }
    I code(F u) const {
        I count{};
        for (const F border : borders)
            count -= u >= border;
        return count;
    }

  private:
    F borders[15];
};

#include "quant/coder.h"

} // namespace

const Coder kPortableCoder = {"portable", largest, search, split, pack, feedback, chase};

} // namespace clover::quant

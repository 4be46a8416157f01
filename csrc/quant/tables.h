// What quantisation needs of an instruction set: one row of functions, one file per vector width.
//
// The files include this header and the instruction set's own, and keep every function in an anonymous namespace (see
// kernels/kernels.h). Arrays "[c][16]" hold a column of a tile's 16 rows after the other.
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

namespace clover::quant {

// The levels that codes stand for: codebook's, else every integer from lowest to highest.
struct Levels {
    Scheme scheme;
    float lowest, highest;
    float values[16],
        borders[16]; // codebook4: ascending; borders[i] lies between values i - 1 and i, borders[0] unused
};

struct Group {
    const float *x;       // [columns][16]
    const float *weights; // [columns], largest 1; nullptr: all 1
    int columns;
};

struct GroupLoss {                                               // of one group, by row
    float signal[kTileRows], noise[kTileRows], worst[kTileRows]; // the sums in units of largest^2
};

constexpr int kFactors = 9;       // candidate scales of a search
constexpr int kMostColumns = 128; // of a group

struct Coder {
    const char *name;

    // The element of largest magnitude of each row; false when a value is not finite.
    bool (*largest)(const Group &, float out[kTileRows]);

    // Scales that minimise the weighted squared error: largest / end / factor for each end and factor, refitted.
    void (*search)(const Group &, const Levels &, const float largest[kTileRows], const float *ends, int count,
                   const float factors[kFactors], float scale[kTileRows]);

    // From these scales to ones with a smaller sum of |error|^(3/4).
    void (*split)(const Group &, const Levels &, const float largest[kTileRows], float scale[kTileRows]);

    // Codes of the levels nearest to `values`, packed, and their distance from x; `scale` as stored.
    void (*pack)(const Group &, const float *values, const Levels &, const float largest[kTileRows],
                 const float scale[kTileRows], uint8_t *out, GroupLoss &);

    // target[c][16] = x[c] + sum over done columns j of delta[j] m[j][c], for `columns` columns; m's stride is ld.
    void (*feedback)(const float *x, const float *delta, int64_t done, const float *m, int64_t ld, int columns,
                     float *target);

    // Rounds one column after the other, and moves each one's error into the targets behind it: target becomes the
    // values chosen for, delta[c][16] = x - rounded. m[c][c'] as above, of this group.
    void (*chase)(const Group &x, const Levels &, const float scale[kTileRows], const float *m, int64_t ld,
                  float *target, float *delta);
};

extern const Coder kPortableCoder;
extern const Coder kAvx2Coder;
extern const Coder kAvx512Coder;

// The widest that this processor runs, or the one that goes with a named kernel table (kernels.h).
const Coder &coder(const char *isa = nullptr);

} // namespace clover::quant

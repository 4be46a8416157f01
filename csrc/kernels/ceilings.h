// Loops that do nothing but what they measure: the machine's ceilings, beside which benchmarks set the kernels.
// Same rule as in kernels.h: files with wider flags include this header and the instruction set's own only.
#pragma once

#include <stdint.h>

namespace clover {

struct Ceilings {
    const char *isa;
    // Int8 multiply-adds as the int4 kernels do them, and f32 multiply-adds: on registers, `rounds` times
    // what one call of the loop's body does. Return operations done, a multiply-add being two.
    int64_t (*dot)(int64_t rounds);
    int64_t (*fma)(int64_t rounds);
    // Loads `bytes` (a multiple of 1024) once, eight parts side by side: a single stream is slower. Returns a
    // value that depends on all of them.
    uint64_t (*read)(const void *data, int64_t bytes);
};

// Those of an instruction set of kernels.h; all null where none are measured for it.
Ceilings ceilings(const char *isa);

extern const Ceilings kAvx2Ceilings;
extern const Ceilings kAvxVnniCeilings; // the two at 256 bits have a dot alone: the rest is AVX2's
extern const Ceilings kVnni256Ceilings;
extern const Ceilings kAvx512VnniCeilings;
extern const Ceilings kNeonDotprodCeilings;
extern const Ceilings kNeonI8mmCeilings;

} // namespace clover

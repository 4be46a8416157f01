// Reading source rows of any type, and schemes that keep values one by one.
#pragma once

#include <string>

#include "base/half.h"
#include "quant/quantise.h"

namespace clover::quant {

inline float from_bf16(uint16_t bits) { return float_of(uint32_t(bits) << 16); }

std::string text(float);

// ArgumentError that names the first value of elements [first, last) that is not finite.
[[noreturn]] void refuse_infinite(const Rows &, int64_t first, int64_t last);

// Values to little-endian f32 or bf16, row major.
Loss encode_floats(ThreadPool &, const Rows &, Scheme, uint8_t *out);

void add(Loss &sum, const Loss &part);

} // namespace clover::quant

// What this processor and its operating system offer, asked once at load.
#pragma once

#include <string>

namespace clover {

// Names of the extensions that the kernels called `isa` (kernels.h) need and this processor lacks, e.g.
// "avx512_vnni, avx512bw"; empty when it lacks none. Registers that the operating system does not save count as
// lacking.
std::string missing_features(const std::string &isa);

} // namespace clover

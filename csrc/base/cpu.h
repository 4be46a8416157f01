// What this processor and its operating system offer, asked once at load.
#pragma once

#include <string>

namespace clover {

// Instruction sets as the kernels need them, each only if the operating system saves the registers.
struct CpuFeatures {
    bool avx2 = false;       // AVX2, FMA, F16C
    bool avx512vnni = false; // avx2 and AVX-512 F, BW, VL, DQ, VNNI
};

CpuFeatures cpu_features();

// Names of the extensions that `isa` ("avx2" | "avx512vnni") needs and this processor lacks, e.g.
// "avx512_vnni, avx512bw"; empty when it lacks none.
std::string missing_features(const std::string &isa);

} // namespace clover

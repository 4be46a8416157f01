// What this processor and its operating system offer, asked once at load.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace clover {

// The extensions that some kernels need, and whether this processor has each; likewise, register files that the
// operating system has to save.
std::vector<std::pair<std::string, bool>> cpu_features();

// Names of the extensions that the kernels called `isa` (kernels.h) need and this processor lacks, e.g.
// "avx512_vnni, avx512bw"; empty when it lacks none. Registers that the operating system does not save count as
// lacking.
std::string missing_features(const std::string &isa);

// What a number of threads is limited by.
struct ThreadLimits {
    int allowed;  // CPUs that this process may run on; 0: the system does not say
    int cores;    // physical cores among them, or all hardware threads
    double quota; // CPUs that the control group lends; infinite without a limit
    int threads;  // the least of these, the quota rounded down, at least 1
};

// `root` is prefixed to /proc and /sys, for tests.
ThreadLimits thread_limits(const char *root = "");

} // namespace clover

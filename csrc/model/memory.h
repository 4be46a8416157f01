// What the system can still give, so that a request that cannot fit is refused before it starts.
#pragma once

#include <cstdint>
#include <string>

namespace clover {

// MemAvailable of /proc/meminfo in bytes; the largest int64 where there is no such file.
int64_t available_memory();

// Throws MemoryError naming `what` when `bytes` more cannot fit.
void require_memory(const std::string &what, int64_t bytes);

} // namespace clover

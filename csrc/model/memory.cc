#include "model/memory.h"

#include <fstream>
#include <limits>

#include "base/error.h"

namespace clover {

int64_t available_memory() {
    std::ifstream file("/proc/meminfo");
    std::string field;
    int64_t kib = 0;
    while (file >> field) {
        if (field == "MemAvailable:" && file >> kib)
            return kib * 1024;
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return std::numeric_limits<int64_t>::max();
}

void require_memory(const std::string &what, int64_t bytes) {
    const int64_t available = available_memory();
    if (bytes > available)
        throw MemoryError(what, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(available));
}

} // namespace clover

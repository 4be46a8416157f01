#include "base/cpu.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <cstdint>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace clover {

namespace {

struct Feature {
    const char *name;
    bool present;
    std::vector<std::string> isas; // that need it
};

#if defined(__x86_64__)
uint64_t enabled_registers() { // XCR0: register files that the operating system saves
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
}

std::vector<Feature> features() {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0, ebx7 = 0, ecx7 = 0, eax71 = 0;
    __get_cpuid(1, &eax, &ebx, &ecx, &edx);
    const uint32_t ecx1 = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        ebx7 = ebx;
        ecx7 = ecx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
            eax71 = eax;
    }
    const bool osxsave = ecx1 >> 27 & 1;
    const uint64_t saved = osxsave ? enabled_registers() : 0;
    const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    const auto bit = [](uint32_t word, int index) { return (word >> index & 1) != 0; };
    const std::vector<std::string> all = {"avx2", "avxvnni", "vnni256", "avx512vnni"}, evex = {"vnni256", "avx512vnni"};
    return {
        {"operating system support for ymm", ymm, all},
        {"avx2", bit(ebx7, 5), all},
        {"fma", bit(ecx1, 12), all},
        {"f16c", bit(ecx1, 29), all},
        {"avx_vnni", bit(eax71, 4), {"avxvnni"}},
        {"operating system support for zmm", zmm, evex},
        {"avx512f", bit(ebx7, 16), evex},
        {"avx512bw", bit(ebx7, 30), {"avx512vnni"}},
        {"avx512vl", bit(ebx7, 31), evex},
        {"avx512dq", bit(ebx7, 17), {"avx512vnni"}},
        {"avx512_vnni", bit(ecx7, 11), evex},
    };
}
#elif defined(__aarch64__) && defined(__linux__)
std::vector<Feature> features() { // named as in /proc/cpuinfo
    return {
        {"asimddp", (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0, {"neon_dotprod", "neon_i8mm"}},
        {"i8mm", (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0, {"neon_i8mm"}},
    };
}
#else
std::vector<Feature> features() {
    return {{"a processor and system with a vector path",
             false,
             {"avx2", "avxvnni", "vnni256", "avx512vnni", "neon_dotprod", "neon_i8mm"}}};
}
#endif

bool read_line(const std::string &path, std::string &line) {
    std::ifstream file(path);
    return static_cast<bool>(std::getline(file, line));
}

// "0-3,8,10-11" -> {0, 1, 2, 3, 8, 10, 11}
std::set<int> parse_list(const std::string &text) {
    std::set<int> cpus;
    std::istringstream parts(text);
    std::string part;
    while (std::getline(parts, part, ',')) {
        int first = 0, last = 0;
        char dash = 0;
        std::istringstream range(part);
        if (!(range >> first))
            continue;
        if (!(range >> dash >> last))
            last = first;
        for (int cpu = first; cpu <= last; ++cpu)
            cpus.insert(cpu);
    }
    return cpus;
}

std::set<int> allowed_cpus(const std::string &root) {
    std::ifstream status(root + "/proc/self/status");
    const std::string key = "Cpus_allowed_list:";
    for (std::string line; std::getline(status, line);)
        if (line.compare(0, key.size(), key) == 0)
            return parse_list(line.substr(key.size()));
    return {};
}

// CPUs that `period` buys under quota file(s) in `dir`, infinity without a limit.
double quota_v2(const std::string &dir) {
    std::string line;
    double quota = 0, period = 0;
    if (read_line(dir + "/cpu.max", line) && std::istringstream(line) >> quota >> period && period > 0)
        return quota / period; // "max 100000" fails to parse as a number: no limit
    return std::numeric_limits<double>::infinity();
}

double quota_v1(const std::string &dir) {
    std::string quota_line, period_line;
    if (!read_line(dir + "/cpu.cfs_quota_us", quota_line) || !read_line(dir + "/cpu.cfs_period_us", period_line))
        return std::numeric_limits<double>::infinity();
    double quota = 0, period = 0;
    std::istringstream(quota_line) >> quota;
    std::istringstream(period_line) >> period;
    return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

// The tightest limit from the process's group up to the mount's root (inside a container the path
// names a directory that does not exist there, and the limit stands at the mount's root).
template <typename Quota> double tightest(const std::string &mount, std::string path, Quota quota) {
    double limit = quota(mount);
    while (path.size() > 1) {
        limit = std::min(limit, quota(mount + path));
        path.resize(path.rfind('/'));
    }
    return limit;
}

double cgroup_limit(const std::string &root) {
    double limit = std::numeric_limits<double>::infinity();
    std::ifstream groups(root + "/proc/self/cgroup"); // lines "id:controllers:path"
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos || second + 1 >= line.size() ||
            line[second + 1] != '/')
            continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        if (controllers.empty()) {
            limit = std::min(limit, tightest(root + "/sys/fs/cgroup", path, quota_v2));
        } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
            for (const std::string &mount : {std::string("cpu"), controllers})
                limit = std::min(limit, tightest(root + "/sys/fs/cgroup/" + mount, path, quota_v1));
        }
    }
    return limit;
}

// Physical cores among `cpus`: hardware threads of one core share a sibling list.
int physical_cores(const std::string &root, const std::set<int> &cpus) {
    std::set<std::string> cores;
    for (int cpu : cpus) {
        std::string siblings;
        const std::string dir = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        if (!read_line(dir + "thread_siblings_list", siblings) && !read_line(dir + "core_cpus_list", siblings))
            siblings = "unknown " + std::to_string(cpu);
        cores.insert(siblings);
    }
    return static_cast<int>(cores.size());
}

} // namespace

std::string missing_features(const std::string &isa) {
    std::string missing;
    for (const Feature &feature : features())
        if (!feature.present && std::find(feature.isas.begin(), feature.isas.end(), isa) != feature.isas.end())
            missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
    return missing;
}

std::vector<std::pair<std::string, bool>> cpu_features() {
    std::vector<std::pair<std::string, bool>> found;
    for (const Feature &feature : features())
        found.emplace_back(feature.name, feature.present);
    return found;
}

ThreadLimits thread_limits(const char *root) {
    const std::set<int> cpus = allowed_cpus(root);
    ThreadLimits limits{};
    limits.allowed = static_cast<int>(cpus.size());
    limits.cores = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : physical_cores(root, cpus);
    limits.quota = cgroup_limit(root);
    limits.threads = limits.cores;
    if (limits.quota < limits.threads)
        limits.threads = static_cast<int>(std::floor(limits.quota));
    limits.threads = std::max(limits.threads, 1);
    return limits;
}

int default_threads(const char *root) { return thread_limits(root).threads; }

} // namespace clover

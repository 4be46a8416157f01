// What the processor and the operating system offer, and what is made of it.
#include <pybind11/stl.h>

#include <cmath>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/memory.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace clover {

namespace {

std::vector<std::string> available() {
    std::vector<std::string> names;
    for (const char *const *name = available_isas(); *name; ++name)
        names.emplace_back(*name);
    return names;
}

py::dict isas() {
    py::dict lacks;
    for (const char *const *name = compiled_isas(); *name; ++name)
        lacks[*name] = missing_features(*name);
    return lacks;
}

py::dict features() {
    py::dict found;
    for (const auto &[name, present] : cpu_features())
        found[py::str(name)] = present;
    return found;
}

int threads(const std::string &root) { return default_threads(root.c_str()); }

py::dict limits(const std::string &root) {
    const ThreadLimits limits = thread_limits(root.c_str());
    py::dict found;
    found["allowed"] = limits.allowed;
    found["cores"] = limits.cores;
    found["quota"] = std::isfinite(limits.quota) ? py::object(py::float_(limits.quota)) : py::none();
    found["threads"] = limits.threads;
    return found;
}

} // namespace

void register_machine(py::module_ &m) {
    m.def("available_isas", &available, "Names of the kernel tables that this processor runs, best last.");
    m.def("isas", &isas, "All kernel tables of this build, best last, and what this processor lacks for each.");
    m.def("cpu_features", &features, "What kernels may need of the processor and the system, and whether it is there.");
    m.def("available_memory", &available_memory, "Bytes that the system can still give; 2**63 - 1 if it does not say.");
    m.def("default_threads", &threads, py::arg("root") = "",
          "Threads that a model uses unless told otherwise: the least of affinity, cgroup quota and physical cores.\n"
          "root: a prefix for /proc and /sys, for tests.");
    m.def("thread_limits", &limits, py::arg("root") = "",
          "What that count comes from: CPUs allowed (0: unknown), physical cores among them, quota (None: no limit),\n"
          "threads.");
}

} // namespace clover

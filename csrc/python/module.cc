#include <pybind11/stl.h>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "python/bindings.h"
#include "python/kernels_module.h"

namespace {

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (const char *const *name = clover::available_isas(); *name; ++name)
        names.emplace_back(*name);
    return names;
}

int threads(const std::string &root) { return clover::default_threads(root.c_str()); }

} // namespace

PYBIND11_MODULE(_core, m) {
    namespace py = pybind11;
    m.doc() = "Compiled core of clover_edge: a loaded model, its states, and the decoding loops.";
    clover::register_errors(m);
    clover::register_model(m);
    clover::register_decoding(m);
    clover::register_quant(m);
    clover::register_kernels(m);
    clover::register_timing(m);
    m.def("available_isas", &isas, "Names of the kernel tables that this processor runs, best last.");
    m.def("default_threads", &threads, py::arg("root") = "",
          "Threads that a model uses unless told otherwise: the least of affinity, cgroup quota and physical cores.\n"
          "root: a prefix for /proc and /sys, for tests.");
}

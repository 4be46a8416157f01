// The submodule `kernels`: every row of the kernel table for a named instruction set, on numpy
// arrays. For tests and benchmarks; the runtime itself does not go through it.
#pragma once

#include <pybind11/pybind11.h>

namespace clover {

void register_kernels(pybind11::module_ &m);

} // namespace clover

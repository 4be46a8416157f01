#include <pybind11/pybind11.h>

#include "python/bindings.h"
#include "python/kernels_module.h"

PYBIND11_MODULE(_core, m) {
    namespace py = pybind11;
    m.doc() = "Compiled core of clover_edge: a loaded model, its states, and the decoding loops.";
    clover::register_errors(m);
    clover::register_machine(m);
    clover::register_model(m);
    clover::register_decoding(m);
    clover::register_quant(m);
    clover::register_kernels(m);
    clover::register_timing(m);
}

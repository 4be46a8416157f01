// The parts of the Python module `clover_edge._core`.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "decode/generate.h"
#include "model/weights.h"

namespace clover {

void register_errors(pybind11::module_ &);
void register_machine(pybind11::module_ &);  // what the processor and the system offer
void register_model(pybind11::module_ &);    // Model and State
void register_state(pybind11::module_ &);    // State alone
void register_decoding(pybind11::module_ &); // the submodule `decoding`
void register_quant(pybind11::module_ &);    // the submodule `quant`
void register_timing(pybind11::module_ &);   // the submodule `timing`
void register_timing_mixers(pybind11::module_ &timing);

// From Python objects. Each throws FormatError or ArgumentError naming the field that does not fit.
Spec spec_from(const pybind11::dict &);
std::vector<TensorRow> table_from(const pybind11::list &);
DecodeOptions options_from(const pybind11::dict &);
Logits logits_from(const std::string &);

pybind11::dict to_python(const Event &);
pybind11::dict to_python(const DecodeResult &);

} // namespace clover

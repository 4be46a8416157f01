// A constraint that a Python object decides.
#pragma once

#include <pybind11/pybind11.h>

#include "decode/constraint.h"

namespace clover {

// `rule` has force(most, room) -> ids, allowed(), which leaves its answer in the array `bits`, int32 or uint32 with 32
// ids a word, and advance(id, room) -> bool: see constraint.h. Made, used and dropped without holding the interpreter's
// lock for longer than a call takes.
class PythonConstraint final : public Constraint {
  public:
    // Throws ArgumentError naming what `rule` lacks.
    PythonConstraint(pybind11::object rule, int vocab_size);

    std::vector<int> force(int64_t most, int64_t room) override;
    const uint32_t *allowed() override;
    bool advance(int id, int64_t room) override;

  private:
    const pybind11::object force_, allowed_, advance_, bits_;
    const uint32_t *words_;
};

} // namespace clover

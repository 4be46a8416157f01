#include "python/constraint.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/error.h"

namespace py = pybind11;

namespace clover {
namespace {

py::object attribute(const py::object &rule, const char *name) {
    if (!py::hasattr(rule, name))
        throw ArgumentError(std::string("constraint: has no \"") + name + "\"");
    return rule.attr(name);
}

const uint32_t *words_of(const py::object &bits, int vocab_size) {
    const int64_t words = (int64_t(vocab_size) + 31) / 32;
    if (!py::isinstance<py::array>(bits))
        throw ArgumentError("constraint: \"bits\" is no array");
    const auto array = py::reinterpret_borrow<py::array>(bits);
    const char kind = array.dtype().kind();
    if ((kind != 'i' && kind != 'u') || array.itemsize() != 4 || !(array.flags() & py::array::c_style) ||
        array.size() != words)
        throw ArgumentError("constraint: \"bits\" is no contiguous array of " + std::to_string(words) +
                            " 32-bit words");
    return static_cast<const uint32_t *>(array.data());
}

} // namespace

PythonConstraint::PythonConstraint(py::object rule, int vocab_size)
    : force_(attribute(rule, "force")), allowed_(attribute(rule, "allowed")), advance_(attribute(rule, "advance")),
      bits_(attribute(rule, "bits")), words_(words_of(bits_, vocab_size)) {}

std::vector<int> PythonConstraint::force(int64_t most, int64_t room) {
    const py::gil_scoped_acquire held;
    return force_(most, room).cast<std::vector<int>>();
}

const uint32_t *PythonConstraint::allowed() {
    const py::gil_scoped_acquire held;
    allowed_();
    return words_;
}

bool PythonConstraint::advance(int id, int64_t room) {
    const py::gil_scoped_acquire held;
    return advance_(id, room).cast<bool>();
}

} // namespace clover

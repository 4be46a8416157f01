// What the bindings of single kernels share: the table by name, and arrays as rows.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "kernels/kernels.h"

namespace clover {

namespace py = pybind11;

using Floats = py::array_t<float, py::array::forcecast>;
using Ints = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Isa = std::optional<std::string>;
using Range = std::optional<std::pair<int, int>>;

inline const Kernels &table(const Isa &isa) { return kernels(isa ? isa->c_str() : nullptr); }

inline void require(bool condition, const std::string &message) {
    if (!condition)
        throw py::value_error(message);
}

// A float array of one or two dimensions as rows; a view with a longer row stride is read in place,
// so that tests reach strides. Holds the array alive.
struct Rows {
    Rows(const char *name, Floats source) : array(std::move(source)) {
        require(array.ndim() == 1 || array.ndim() == 2, std::string(name) + ": expected one or two dimensions");
        require(array.size() > 0, std::string(name) + ": is empty");
        const bool matrix = array.ndim() == 2;
        if (array.strides(array.ndim() - 1) != sizeof(float) || (matrix && array.strides(0) % sizeof(float) != 0) ||
            (matrix && array.strides(0) < static_cast<py::ssize_t>(array.shape(1) * sizeof(float))))
            array = py::array_t<float, py::array::c_style | py::array::forcecast>(array);
        rows = matrix ? static_cast<int>(array.shape(0)) : 1;
        n = static_cast<int>(array.shape(array.ndim() - 1));
        ld = matrix ? array.strides(0) / static_cast<py::ssize_t>(sizeof(float)) : n;
    }
    const float *data() const { return array.data(); }
    void expect(const char *name, int want_rows, int want_n) const {
        require(rows == want_rows && n == want_n, std::string(name) + ": expected [" + std::to_string(want_rows) +
                                                      ", " + std::to_string(want_n) + "], got [" +
                                                      std::to_string(rows) + ", " + std::to_string(n) + "]");
    }

    Floats array;
    int rows, n;
    int64_t ld;
};

inline py::array_t<float> make(int rows, int n) { return py::array_t<float>({rows, n}); }

inline py::array_t<float> copy(const Rows &source) {
    py::array_t<float> out = make(source.rows, source.n);
    for (int r = 0; r < source.rows; ++r)
        std::copy_n(source.data() + r * source.ld, source.n, out.mutable_data(r, 0));
    return out;
}

void register_products(py::module_ &m); // kernels_products.cc

} // namespace clover

// One Python dictionary, read field by field.
#pragma once

#include <pybind11/stl.h>

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace clover {

namespace py = pybind11;

inline std::string type_name(const py::handle &value) { return py::str(py::type::of(value).attr("__name__")); }

// Reads one dictionary. `fail` says how a bad field is reported.
class Fields {
  public:
    using Fail = std::function<void(const std::string &field, const std::string &reason)>;

    Fields(const py::dict &dict, Fail fail) : fail_(std::move(fail)) {
        for (auto item : dict) {
            if (!py::isinstance<py::str>(item.first))
                bad("a key", "is no string");
            values_[py::cast<std::string>(item.first)] = py::reinterpret_borrow<py::object>(item.second);
        }
    }

    template <class T> void required(const char *name, T &out) {
        if (!optional(name, out))
            bad(name, "is missing");
    }

    // False, and `out` left alone, where the field is missing.
    template <class T> bool optional(const char *name, T &out) {
        auto it = values_.find(name);
        if (it == values_.end())
            return false;
        read(name, it->second, out);
        values_.erase(it);
        return true;
    }

    // A field nobody read would change the result without a word.
    void done() {
        if (!values_.empty())
            bad(values_.begin()->first, "is not known");
    }

    [[noreturn]] void bad(const std::string &field, const std::string &reason) const {
        fail_(field, reason);
        throw std::logic_error("Fail must throw");
    }

  private:
    void read(const char *name, const py::object &value, int64_t &out) const {
        if (py::isinstance<py::bool_>(value) || !PyIndex_Check(value.ptr()))
            bad(name, "is no integer but " + type_name(value));
        const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
        int overflow = 0;
        out = index ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
        if (!index)
            throw py::error_already_set();
        if (overflow)
            bad(name, "is too large");
    }

    void read(const char *name, const py::object &value, int &out) const {
        int64_t wide = 0;
        read(name, value, wide);
        if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
            bad(name, std::to_string(wide) + " is too large");
        out = int(wide);
    }

    void read(const char *name, const py::object &value, int8_t &out) const {
        int64_t wide = 0;
        read(name, value, wide);
        if (wide < std::numeric_limits<int8_t>::min() || wide > std::numeric_limits<int8_t>::max())
            bad(name, std::to_string(wide) + " is too large");
        out = int8_t(wide);
    }

    void read(const char *name, const py::object &value, uint64_t &out) const {
        int64_t wide = 0;
        read(name, value, wide);
        out = uint64_t(wide);
    }

    void read(const char *name, const py::object &value, double &out) const {
        if (py::isinstance<py::bool_>(value) || !PyNumber_Check(value.ptr()))
            bad(name, "is no number but " + type_name(value));
        out = PyFloat_AsDouble(value.ptr());
        if (out == -1 && PyErr_Occurred())
            throw py::error_already_set();
    }

    void read(const char *name, const py::object &value, float &out) const {
        double wide = 0;
        read(name, value, wide);
        out = float(wide);
    }

    void read(const char *name, const py::object &value, bool &out) const {
        if (!py::isinstance<py::bool_>(value))
            bad(name, "is no bool but " + type_name(value));
        out = value.cast<bool>();
    }

    void read(const char *name, const py::object &value, std::string &out) const {
        if (!py::isinstance<py::str>(value))
            bad(name, "is no string but " + type_name(value));
        out = value.cast<std::string>();
    }

    template <class T> void read(const char *name, const py::object &value, std::vector<T> &out) const {
        if (py::isinstance<py::str>(value) || !py::isinstance<py::iterable>(value))
            bad(name, "is no list but " + type_name(value));
        out.clear();
        for (py::handle item : value) {
            T element{};
            read(name, py::reinterpret_borrow<py::object>(item), element);
            out.push_back(element);
        }
    }

    std::map<std::string, py::object> values_;
    Fail fail_;
};

} // namespace clover

// C++ errors become the classes of clover_edge/errors.py, which is imported when the first one is raised.
#include <new>

#include "base/error.h"
#include "model/spec.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace clover {
namespace {

template <class... Args> void raise(const char *name, Args &&...args) {
    try {
        const py::object cls = py::module_::import("clover_edge.errors").attr(name);
        const py::object error = cls(std::forward<Args>(args)...);
        PyErr_SetObject(cls.ptr(), error.ptr());
    } catch (py::error_already_set &missing) {
        missing.restore();
    }
}

void translate(std::exception_ptr pointer) {
    if (!pointer)
        return;
    try {
        std::rethrow_exception(pointer);
    } catch (const FormatError &e) {
        raise("ModelFormatError", e.path, e.field, std::string(e.what()).substr(e.path.size() + e.field.size() + 4));
    } catch (const UnsupportedModel &e) {
        raise("UnsupportedModelError", e.what());
    } catch (const UnsupportedError &e) {
        raise("UnsupportedDeviceError", e.what());
    } catch (const ContextLengthError &e) {
        raise("ContextLengthError", e.what());
    } catch (const ArgumentError &e) {
        raise("ArgumentError", e.what());
    } catch (const MemoryError &e) {
        raise("OutOfMemoryError", e.needed, e.available, std::string(e.what()));
    } catch (const Error &e) {
        raise("CloverError", e.what());
    } catch (const std::bad_alloc &) {
        raise("OutOfMemoryError", 0, 0, "an allocation failed");
    }
}

} // namespace

void register_errors(py::module_ &) { py::register_local_exception_translator(translate); }

} // namespace clover

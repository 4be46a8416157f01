// Typed errors of the core. The binding turns each into the Python exception of the same name.
#pragma once

#include <stdexcept>
#include <string>

namespace clover {

class Error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A file or a table entry does not say what the format promises. `field` is a tensor or spec field.
class FormatError : public Error {
  public:
    FormatError(std::string path, std::string field, const std::string &reason)
        : Error(path + ": " + field + ": " + reason), path(std::move(path)), field(std::move(field)) {}
    std::string path, field;
};

// A well-formed request that this build or this processor cannot serve.
class UnsupportedError : public Error {
    using Error::Error;
};

// A caller's argument is outside its domain.
class ArgumentError : public Error {
    using Error::Error;
};

class ContextLengthError : public Error {
    using Error::Error;
};

class MemoryError : public Error {
  public:
    MemoryError(const std::string &what, unsigned long long needed, unsigned long long available)
        : Error(what + ": needs " + std::to_string(needed) + " bytes, " + std::to_string(available) + " available"),
          needed(needed), available(available) {}
    unsigned long long needed, available;
};

} // namespace clover

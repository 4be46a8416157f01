// A state as bytes: for files, and for the same model alone.
#pragma once

#include <cstdint>
#include <functional>

#include "model/model.h"

namespace clover {

using Sink = std::function<void(const void *data, size_t bytes)>;

// Writes a state with its marks, piece by piece; what a roll-back would need is left out. Throws Error where
// an error has left the state half way, and what the sink throws.
void save_state(const State &, const Sink &);

// The state that save_state() has written, with room for `max_tokens` tokens. Throws FormatError("state", field,
// reason) where the bytes are not what it writes, are damaged, or are of a model of another shape; ContextLengthError,
// MemoryError.
State load_state(const Model &model, const uint8_t *data, int64_t bytes, int64_t max_tokens);

} // namespace clover

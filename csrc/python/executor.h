// Passes that a Python object computes.
#pragma once

#include <pybind11/numpy.h>

#include "model/executor.h"

namespace clover {

// `external` has forward(mode, ids, positions, sees_to, history_width, caches) -> (hidden [n, H], new) and
// head(hidden [m, H]) -> logits [m, vocab_size]. mode: "commit" or "preview"; ids to sees_to: int64 [n]. caches: what
// stands in front, read-only float32 views that are valid during the call, kv.{i}.k and kv.{i}.v [p, nkv, hd] of
// attention layers, delta.{i}.S [Hv, dk, dv] and delta.{i}.ring [taps-1, C] of DeltaNet ones. new: by the same names,
// keys and values of the n rows, and of a commit what the DeltaNet layers carry behind them. All float32.
class PythonExecutor final : public Executor {
  public:
    // Throws ArgumentError naming what `external` lacks.
    PythonExecutor(const pybind11::object &external, const Spec &);
    ~PythonExecutor() override;

    void forward(const PassCall &, State &, float *hidden) override;
    const float *head(const float *hidden, int rows) override;

  private:
    pybind11::dict caches(State &, int64_t past) const;

    const Spec spec_;
    pybind11::object forward_, head_, logits_; // the last: what head() has returned
};

} // namespace clover

// Somebody else who computes passes, in the kernels' place: states, decoding and the reduction of logits stay here.
#pragma once

#include <cstdint>
#include <vector>

#include "model/state.h"

namespace clover {

// n rows behind p tokens. Row i sees the first sees_to[i] rows of the call and all tokens in front; where a layer has a
// window, both as far as positions are within it.
struct PassCall {
    bool commit;                                  // rows become text; else a preview
    bool moves;                                   // a commit: recurrent states move on by all rows
    std::vector<int64_t> ids, positions, sees_to; // [n]
    int64_t past;                                 // p, rows of the state's caches
    double history_width;                         // of a preview, see PreviewOptions.width
};

class Executor {
  public:
    virtual ~Executor() = default;

    // hidden [n, H] <- the residual stream behind the last layer. The rows' keys and values go into the state's caches,
    // behind the p in front; its recurrent states change where the call moves them. Throws before either is written to.
    virtual void forward(const PassCall &, State &, float *hidden) = 0;

    // Logits [rows, vocab_size] of hidden [rows, H], softcap included. They are there until the next call.
    virtual const float *head(const float *hidden, int rows) = 0;
};

} // namespace clover

// The projection onto the vocabulary, for the rows that somebody asks for.
#pragma once

#include <vector>

#include "model/model.h"

namespace clover {

// hidden [.., H]: outputs of the last layer; rows: which of them, at most as many as scratch has room for.

// out [rows, vocab_size], padding ids and the mask id included. Throws Error when a value is not finite.
void head_logits(Model &, const float *hidden, const std::vector<int> &rows, float *out);

// Best real id of each row (neither padding nor the mask), its logit, and the sum over real ids that gives its
// probability. No logits are kept. Throws Error when a logit is not finite.
void head_stats(Model &, const float *hidden, const std::vector<int> &rows, std::vector<HeadStats> &out);

} // namespace clover

// Log-probabilities of tokens: what the model itself says of them, before penalties, temperature, top-k and top-p.
#pragma once

#include <cmath>
#include <vector>

#include "decode/sampling.h"

namespace clover {

// Over real tokens: neither padding nor the mask has a share.
struct LogProb {
    float value = NAN;          // ln p; NaN where no pass has computed the token's row
    std::vector<Candidate> top; // the most probable tokens, best first; `logit` holds ln p
};

// Of token ids[i] in row rows[i] of a pass whose rule has neither penalties nor a temperature, with `top` alternatives.
std::vector<LogProb> log_probs(HeadPass &, const std::vector<int> &rows, const std::vector<int> &ids, int top);

} // namespace clover

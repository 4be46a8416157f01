// From a row of logits to a token: penalties, temperature, top-k, top-p, and a draw that depends on nothing
// but the seed and the place in the text.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/spec.h"

namespace clover {

struct SamplingOptions {
    double temperature = 0; // 0: the most probable token
    int top_k = 0;          // 0: off
    double top_p = 1;       // 1: off
    uint64_t seed = 0;
    // Over the tokens of the response, not the prompt.
    double presence_penalty = 0;   // subtracted once from the logit of a token that occurred
    double frequency_penalty = 0;  // subtracted per occurrence
    double repetition_penalty = 1; // divides a positive logit, multiplies a negative one

    bool penalties() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
    // False: statistics of the head are enough (head.h).
    bool needs_logits() const { return temperature > 0 || penalties(); }
};

// How often each token occurs in the response so far.
using Occurrences = std::unordered_map<int, int>;

struct Pick {
    int id;
    float probability; // over real tokens; when sampling: behind temperature, top-k and top-p
};

// Uniform in [0, 1): a hash of its arguments, so that threads draw in any order.
double uniform(uint64_t seed, int64_t position, int step);

// Picks from logits [vocab_size], which penalties change in place; neither the mask nor padding is picked.
// `u` in [0, 1) decides the draw when the temperature is above 0.
Pick pick(float *logits, const Spec &, const SamplingOptions &, const Occurrences &, double u);

} // namespace clover

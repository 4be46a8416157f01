// From the head to tokens: penalties, temperature, top-k, top-p, and a draw that depends on nothing but the seed and
// the place in the text. No array of logits: see head.h.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/head.h"

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

    bool cuts() const { return temperature > 0 && (top_k > 0 || top_p < 1); }
    bool penalties() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
};

// How often each token occurs in the response so far.
using Occurrences = std::unordered_map<int, int>;

// How sure a model is of a row: of its pick; by how much the likeliest token leads; by how little is left open, the sum
// of p ln p; or no matter.
enum class Confidence { probability, margin, entropy, random };

struct Pick {
    int id;
    float probability;    // over real tokens; when sampling: behind temperature, top-k and top-p
    float confidence = 0; // where it is asked for, of the same distribution
};

struct Candidate {
    int id;
    float logit;
};

// Uniform in [0, 1): a hash of its arguments, so that rows may draw in any order.
double uniform(uint64_t seed, int64_t position, int step);

// The rule by which a pass over the head serves pick(); `penalties` is what it points to.
HeadRule head_rule(const SamplingOptions &, const Occurrences &, std::vector<HeadRule::Penalty> &penalties);

// A pick for every row of the pass; u [rows] in [0, 1) decides the draws when the temperature is above 0.
std::vector<Pick> pick(HeadPass &, const SamplingOptions &, const std::vector<double> &u);
// The same with their confidences.
std::vector<Pick> pick(HeadPass &, const SamplingOptions &, const std::vector<double> &u, Confidence);

// The `count` most probable tokens of each of `rows` of the pass, best first, ties to the lower id.
std::vector<std::vector<Candidate>> best_of(HeadPass &, const std::vector<int> &rows, int count);

// Margin or entropy from logits over all real tokens: confidence.cc.
void add_confidence(HeadPass &, Confidence, std::vector<Pick> &);

} // namespace clover

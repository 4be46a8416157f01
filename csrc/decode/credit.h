// Credit (dInfer, 2025): tokens that led at a position in earlier steps of its block are believed a little more.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "decode/sampling.h"

namespace clover {

// By position and token: what it earned, which fades by a step. Logits grow by weight * ln(1 + credit).
class Credit {
  public:
    static constexpr double kKept = 0.8;  // of the credit, from step to step
    static constexpr double kPower = 0.2; // a leader of probability p earns p ^ kPower

    explicit Credit(double weight) : weight_(weight) {}
    bool on() const { return weight_ > 0; }
    void clear() { earned_.clear(); } // a block begins

    // The leader of every row of the pass earns, then the pick of each, greedy. positions [rows]
    std::vector<Pick> pick(HeadPass &, const std::vector<int64_t> &positions);

  private:
    double weight_;
    std::map<int64_t, std::map<int, double>> earned_;
};

} // namespace clover

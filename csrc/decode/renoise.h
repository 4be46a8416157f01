// Denoising a canvas of random ids: which positions a step keeps, when the canvas is done. The others get fresh random
// ids.
#pragma once

#include <vector>

namespace clover {

struct RenoisePolicy {
    static constexpr int kSteps = 48; // of a canvas, where nobody says

    double t_min = 0.4, t_max = 0.8; // temperature of the last step, and one step above that of the first
    double entropy_bound = 0.1;
    int stability_threshold = 1;         // steps before that must have found the same most probable ids
    double confidence_threshold = 0.005; // and the mean entropy, in nats, must be below this

    // Of step `step` of `steps`: falls in equal parts, from near t_max to near t_min.
    double temperature(int step, int steps) const { return t_min + (t_max - t_min) * (double(steps - step) / steps); }

    // Positions that are kept: see accept_by_entropy.
    std::vector<char> accept(const std::vector<double> &entropy) const;
};

// Of one canvas: whether its most probable ids have come to rest.
class Stability {
  public:
    // Takes what a step found; true: the canvas is done.
    bool settled(const RenoisePolicy &, const std::vector<int> &best, const std::vector<double> &entropy);

  private:
    std::vector<int> last_;
    int unchanged_ = 0; // steps in a row that found what the one before them did
};

} // namespace clover

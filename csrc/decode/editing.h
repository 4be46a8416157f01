// Token editing: tokens that a block already holds are replaced while it is denoised.
#pragma once

#include <vector>

namespace clover {

struct EditPolicy {
    double threshold = -1;   // replace where another token's probability is strictly above; negative: never
    int max_post_steps = 16; // most steps of a block behind its last mask

    bool on() const { return threshold >= 0; }
    // Whether `pick`, of that probability, replaces `token`.
    bool replaces(int token, int pick, float probability) const {
        return on() && pick != token && double(probability) > threshold;
    }
};

// How far the editing of one block is.
struct EditProgress {
    int post_steps = 0;   // steps that found no mask
    bool settled = false; // the last of them changed nothing

    bool done(const EditPolicy &policy, bool masked) const {
        return !masked && (settled || post_steps >= policy.max_post_steps);
    }
    void step(bool masked, bool changed) {
        post_steps += !masked;
        settled = !masked && !changed;
    }
};

} // namespace clover

// Decoding that inserts and deletes: two tokens of the vocabulary are commands that a step carries out on its block.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "decode/editing.h"

namespace clover {

struct IndelPolicy {
    int mask, remove,
        split;          // ids: remove takes its position out, split puts a mask in front of the token that was there
    double threshold;   // of masks
    EditPolicy editing; // of other tokens
};

// How far one block is. Masks are those that it started with, or brought in by a command.
class IndelBlock {
  public:
    struct Best { // of a position
        int id;
        float logit, probability;
    };
    // The best tokens at `positions`, but for the `banned` ids; probabilities are over the others.
    using Look = std::function<std::vector<Best>(const std::vector<int> &positions, const std::vector<int> &banned)>;

    IndelBlock(const IndelPolicy &, std::size_t width);

    // Nothing is left to do: the last step wrote nothing, or cleaned up.
    bool done() const { return done_; }
    // One step on what a preview says of the block. Returns the positions that it wrote, in front of its commands.
    std::vector<char> step(std::vector<int> &block, const Look &);

  private:
    struct Count {
        int started = 0, all = 0; // masks
    };

    Count count(const std::vector<int> &block) const;
    std::vector<Best> proposals(const std::vector<int> &block, const Look &) const;
    std::vector<char> masks_to_fill(const std::vector<int> &block, const std::vector<Best> &) const;
    bool must_finish(const std::vector<int> &block, const std::vector<char> &filled);
    void clean(std::vector<Best> &, const Look &) const;
    void leave_loop(const std::vector<int> &block, const std::vector<char> &written, std::vector<Best> &,
                    const Look &) const;
    void obey(std::vector<int> &block, const std::vector<int> &written);

    const IndelPolicy policy_;
    std::vector<char> started_;        // masks that the block started with, wherever they are now
    std::vector<std::set<int>> tried_; // ids that were written at a position
    std::set<std::vector<int>> seen_;  // blocks that steps started from
    int steps_ = 0, post_steps_ = 0;   // all of them; those that found no mask of the start
    bool done_ = false;
};

} // namespace clover

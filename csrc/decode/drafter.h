// Where speculative decoding has its drafts from: the model's own previews, or another model.
#pragma once

#include <vector>

#include "decode/generate.h"

namespace clover {

class Drafter {
  public:
    Drafter() = default;
    virtual ~Drafter() = default;
    Drafter(const Drafter &) = delete;
    Drafter &operator=(const Drafter &) = delete;

    // `rows` tokens: `given`, which follow the text, and the most probable ones behind them.
    virtual std::vector<int> draft(const std::vector<int> &given, int rows) = 0;
    // The first `rows` rows of the text's last commit stand.
    virtual void follow(int rows) = 0;
};

// One preview of the text's own model.
class OwnPreviews final : public Drafter {
  public:
    OwnPreviews(Model &model, State &text, int coreset) : m_(model), text_(text), coreset_(coreset) {}

    std::vector<int> draft(const std::vector<int> &given, int rows) override;
    void follow(int) override {} // the text's state is all that a preview reads

  private:
    Model &m_;
    State &text_;
    const int coreset_;
};

// One pass of a drafter, whose context follows the text row by row: rows that were not verified never reach it.
class ContextDrafter final : public Drafter {
  public:
    // While it lives, commits to `text` keep what the drafter reads.
    ContextDrafter(Model &target, State &text, const DraftModel &);
    ~ContextDrafter() override;

    std::vector<int> draft(const std::vector<int> &given, int rows) override;
    void follow(int rows) override;

  private:
    Model &target_;
    State &text_;
    Model &m_;
    State &context_;
};

} // namespace clover

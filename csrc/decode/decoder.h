// What the two decoding loops share. Internal to csrc/decode.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "decode/drafter.h"
#include "decode/generate.h"
#include "decode/indel.h"
#include "decode/logprobs.h"
#include "model/head.h"

namespace clover {

// Throws ArgumentError naming the option where the value is outside [low, high] or NaN.
void check_range(const char *name, double value, double low, double high);

class Decoder {
  public:
    Decoder(Model &, State &, const DecodeOptions &, const Listener &, const Tick &, const DraftModel *, Constraint *);

    DecodeResult run(const std::vector<int> &prompt);

  private:
    using Clock = std::chrono::steady_clock;

    // How a finished run of tokens is cut: `kept` of them are text.
    struct Cut {
        int64_t kept = 0;
        Finish finish = Finish::none;
    };

    void check(const std::vector<int> &prompt) const;
    void check_blocks(bool empty) const;
    void check_canvases() const;
    void check_indel() const;
    void check_drafter(int64_t tokens) const;
    void reserve(int64_t prompt_tokens);
    size_t piece(size_t left) const; // of the prompt, that is committed at once
    void prefill(const std::vector<int> &prompt);

    // block_decoder.cc
    void decode_blocks();
    bool fuses() const;
    std::vector<int> new_block();
    void denoise(std::vector<int> &block);
    std::vector<int> rows_to_compute(const std::vector<int> &all, int step) const;
    void preview(const std::vector<int> &block, int step);
    int output_row(int row) const; // of a row of [open | block]
    std::vector<char> step(std::vector<int> &block, int step, std::vector<int> &draft);
    std::vector<int> candidates(const std::vector<int> &block) const;
    std::vector<char> accept(const std::vector<int> &tokens, const std::vector<Pick> &picks,
                             const std::vector<double> &entropy, int step) const;
    bool settled(const std::vector<int> &block) const;
    bool masked(int id) const { return id == m_.spec.mask_token_id; }

    // indel_decoder.cc
    void denoise_with_indel(std::vector<int> &block);
    std::vector<IndelBlock::Best> best_at(const std::vector<int> &positions, std::vector<int> banned);

    // canvas_decoder.cc
    void decode_canvases();
    std::vector<int> denoise_canvas();
    std::vector<double> canvas_step(std::vector<int> &canvas, int step, int steps, std::vector<int> &best,
                                    std::vector<char> &accepted);
    int noise(int64_t position, int step) const;

    // masked_canvas.cc
    void check_unmasking() const;
    void decode_masks();
    void denoise_masks(std::vector<int> &block);
    int64_t first_computed(bool whole) const;
    int64_t first_row(bool whole) const;
    void preview_masks(const std::vector<int> &block, bool whole);
    std::vector<Pick> pick_masks(const std::vector<int> &masks, bool whole, int step);

    // constrained_decoder.cc
    struct Front { // of a block: what stands in front of it is text
        size_t at = 0, limit = 0;
        bool overruled = false; // a token stands, or a draft fell, against what the model wanted
    };
    struct Deciding { // rows of hidden [.., H], what they decide, and their picks without constraint
        const float *hidden;
        std::vector<int> rows;
        std::vector<int64_t> positions;
        std::vector<Pick> picks;
    };
    void check_constraint() const;
    std::vector<int> force(int64_t most, int64_t room);
    bool advance(int id, int64_t room);
    Pick allowed_pick(int row, int64_t position, int step, const uint32_t *allowed, const Pick &free);
    int next_allowed(Deciding &, size_t i, size_t ahead);
    int next_allowed(); // behind the state
    std::vector<int> next_run();
    void drop_drafts(std::vector<int> &block, size_t from) const;
    bool at_end(const Front &, const std::vector<int> &block) const;
    void stand(std::vector<int> &block, Front &, int id, const std::vector<int> &draft);
    const uint32_t *move_front(std::vector<int> &block, Front &, const std::vector<int> &draft);
    void denoise_constrained(std::vector<int> &block);
    const uint32_t *constrained_step(std::vector<int> &block, Front &, const uint32_t *allowed, int step,
                                     std::vector<int> &draft);
    const uint32_t *pick_front(std::vector<int> &block, Front &, const uint32_t *allowed, int step,
                               const std::vector<int> &looked_at, const std::vector<Pick> &picks,
                               const std::vector<int> &draft);
    std::vector<int> deciding_rows(std::vector<int> &positions, bool whole) const;
    void note_written(const std::vector<int> &block, const std::vector<int> &positions, const std::vector<int> &rows);

    // autoregressive.cc
    void decode_tokens();
    Pick next_token(); // behind the state, and of the text so far

    // speculative.cc
    void decode_speculatively();
    std::vector<int> draft(int first, size_t &given);
    void verify_pass(const std::vector<int> &drafted);
    size_t verify(const std::vector<int> &drafted, Pick &next);
    size_t verify_allowed(const std::vector<int> &drafted, size_t given, Pick &next);
    void note_verified(const std::vector<int> &drafted, size_t kept, const Pick &next);

    // logprobs.cc
    // Keeps the log-probabilities of ids[i], which rows[i] of hidden [.., H] has decided, for places[i] of the answer.
    void note(const float *hidden, const std::vector<int> &rows, const std::vector<int64_t> &places,
              const std::vector<int> &ids);
    void keep(std::vector<LogProb>, const std::vector<int64_t> &places);
    std::vector<LogProb> take_noted(int64_t count);

    // Picks for rows of hidden [.., H]; the token that rows[i] decides stands at positions[i]. entropy [rows], unless
    // it is null.
    std::vector<Pick> pick_rows(const float *hidden, const std::vector<int> &rows,
                                const std::vector<int64_t> &positions, int step,
                                std::vector<double> *entropy = nullptr);
    HeadRule rule(std::vector<HeadRule::Penalty> &) const; // of a pass over the head; the penalties are its own
    Cut cut(const std::vector<int> &tokens);
    // Adds the text of finished tokens to the result and reports it; cuts them to that and the stop token.
    void add_text(std::vector<int> &tokens);
    // The same, and commits what the text so far ends with, or leaves it to the next preview.
    void close_block(std::vector<int> tokens);
    void commit(const std::vector<int> &tokens);
    void notify(const Event &);

    bool is_stop(int id) const;
    int64_t place(size_t i) const { return int64_t(result_.ids.size() + i); } // in the answer, of a block's i-th token
    int64_t budget() const { return o_.max_new_tokens - int64_t(result_.ids.size()); }
    bool done() const { return result_.finish != Finish::none; }
    double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

    Model &m_;
    State &state_;
    const DraftModel *const external_; // may be null
    Constraint *const constraint_;     // likewise
    DecodeOptions o_;
    const DecodeMode mode_;
    const Listener &listener_;
    const Tick &tick_;
    const Clock::time_point begin_ = Clock::now();
    Occurrences seen_;
    DecodeResult result_;
    std::unique_ptr<Drafter> drafter_; // of mode speculative

    struct Looked { // at the head, by pick_rows()
        const float *hidden;
        std::vector<int> rows;
        HeadPass head;
    };
    std::optional<Looked> last_;
    bool refused_ = false;             // the constraint, the last token that it was told of
    std::map<int64_t, LogProb> noted_; // by place in the answer, of tokens that are no text yet

    // Of the block being denoised.
    Credit credit_;
    Block kept_;
    std::vector<int> computed_;    // [open | block] tokens that its rows were last computed of; empty before the first
    std::vector<int> rows_;        // that the last preview computed
    int front_ = 0;                // output rows in front of them: of a commit in the same pass
    std::vector<int> uncommitted_; // tokens of the block before, for the next preview's pass
};

} // namespace clover

// What the two decoding loops share. Internal to csrc/decode.
#pragma once

#include <chrono>
#include <memory>

#include "decode/drafter.h"
#include "decode/generate.h"
#include "decode/indel.h"

namespace clover {

// Throws ArgumentError naming the option where the value is outside [low, high] or NaN.
void check_range(const char *name, double value, double low, double high);

class Decoder {
  public:
    Decoder(Model &, State &, const DecodeOptions &, const Listener &, const Tick &, const DraftModel *);

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
    void preview_masks(const std::vector<int> &block, bool whole);
    std::vector<Pick> pick_masks(const std::vector<int> &masks, bool whole, int step);

    // autoregressive.cc
    void decode_tokens();
    Pick next_token(); // behind the state

    // speculative.cc
    void decode_speculatively();
    size_t verify(const std::vector<int> &drafted, Pick &next);

    // Picks for rows of hidden [.., H]; the token that rows[i] decides stands at positions[i]. entropy [rows], unless
    // it is null.
    std::vector<Pick> pick_rows(const float *hidden, const std::vector<int> &rows,
                                const std::vector<int64_t> &positions, int step,
                                std::vector<double> *entropy = nullptr);
    Cut cut(const std::vector<int> &tokens);
    // Adds the text of finished tokens to the result and reports it; cuts them to that and the stop token.
    void add_text(std::vector<int> &tokens);
    // The same, and commits what the text so far ends with, or leaves it to the next preview.
    void close_block(std::vector<int> tokens);
    void commit(const std::vector<int> &tokens);
    void notify(const Event &);

    bool is_stop(int id) const;
    int64_t budget() const { return o_.max_new_tokens - int64_t(result_.ids.size()); }
    bool done() const { return result_.finish != Finish::none; }
    double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

    Model &m_;
    State &state_;
    const DraftModel *const external_; // may be null
    DecodeOptions o_;
    const DecodeMode mode_;
    const Listener &listener_;
    const Tick &tick_;
    const Clock::time_point begin_ = Clock::now();
    Occurrences seen_;
    DecodeResult result_;
    std::unique_ptr<Drafter> drafter_; // of mode speculative

    // Of the block being denoised.
    Credit credit_;
    Block kept_;
    std::vector<int> computed_;    // [open | block] tokens that its rows were last computed of; empty before the first
    std::vector<int> rows_;        // that the last preview computed
    int front_ = 0;                // output rows in front of them: of a commit in the same pass
    std::vector<int> uncommitted_; // tokens of the block before, for the next preview's pass
};

} // namespace clover

// From a prompt to new tokens: prefill, then blocks by diffusion or tokens one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "decode/constraint.h"
#include "decode/credit.h"
#include "decode/editing.h"
#include "decode/logprobs.h"
#include "decode/policy.h"
#include "decode/renoise.h"
#include "decode/sampling.h"
#include "decode/strategy.h"
#include "decode/unmasking.h"
#include "model/model.h"

namespace clover {

// speculative: a preview drafts a block, a commit verifies it and keeps what autoregressive decoding would have
// written.
enum class DecodeMode { diffusion, autoregressive, speculative };
enum class Finish { none, stop, length, cancelled };

// A drafter, its context at the same position as the text.
struct DraftModel {
    Model &model;
    State &state;
};

struct DecodeOptions {
    std::optional<DecodeMode> mode; // unset: speculative with a drafter, else diffusion where there are previews
    int64_t max_new_tokens = 256;
    // 0: the width that the model, or the drafter, was trained with; under a full mask any, cut to the answer's
    int block_length = 0;
    ThresholdPolicy policy;
    StrategyPolicy strategy; // with that threshold and schedule
    double credit = 0;       // weight of it, see credit.h; 0: none
    EditPolicy editing;
    RenoisePolicy renoise;       // of models whose blocks start as random ids; theirs is the temperature, too
    bool fixed_schedule = false; // steps share out the whole block, or else what is masked
    int sub_block = 0;           // positions of a block that are finished before those behind them; 0: all at once
    // Under a full mask; the policy's own base and strategy are those above.
    UnmaskPolicy unmasking;
    StepCache cache = StepCache::none;
    double stop_penalty = 0; // subtracted from the logits of stop tokens
    SamplingOptions sampling;
    std::vector<int> stop_ids;
    int coreset = -1; // experts that the rows of a preview may use; 0: all, -1: the spec's number
    // Of the experts that a step's rows would choose, the share that they use; 0: all. An approximation. A block's
    // first step has them all: masks that are all alike choose few.
    double coreset_share = 0;
    // Rows whose token is no mask and was in its place at the preview before are left out of a preview: what they
    // computed then stays. An approximation; every `refresh` steps of a block (0: never) all rows are computed.
    bool skip_rows = false;
    int refresh = 0;
    bool fused_commit = true; // a block's commit shares the next block's first pass; the numbers are the same
    int logprobs = -1;        // most probable tokens beside each token's log-probability; -1: no log-probabilities
    // False: a block that ends the text need not be committed. True: its kept tokens are, with the stop token.
    bool commit_last = true;
    // Position within `prompt`, or its end, at which the state leaves a mark, in a pass of its own; where blocks count
    // from the ends of commits at the end alone. 0: none.
    int64_t mark = 0;
};

struct Event {
    enum class Type { prefill, step, block };

    explicit Event(Type type) : type(type) {}

    Type type;
    int64_t tokens = 0; // prefill: committed tokens of the prompt so far; an event a pass or so
    int block = 0;      // counted from 0
    int step = 0;       // of the block, counted from 0
    // step: the block behind it, the mask id where still masked, or the next step's noise; block: its final tokens,
    // cut at the stop token or the budget.
    std::vector<int> ids;
    // step: the step's pick at every position that was masked, else the token there; of random ids the most probable
    std::vector<int> draft;
    std::vector<char> accepted; // step: positions that it accepted or replaced; of random ids those that it kept
    Finish finish = Finish::none;
    std::vector<LogProb> logprobs; // block: of its ids, where they are asked for
};

// False cancels. May be empty.
using Listener = std::function<bool(const Event &)>;

// Passes, rows, experts and bytes of the generated blocks; the prefill counts apart.
struct DecodeCounters {
    int64_t blocks = 0, denoise_steps = 0, prefill_passes = 0;
    int64_t commits = 0; // that took a pass of their own
    int64_t drafter_passes = 0;
    Counters work, drafter_work; // of the model, of the drafter
    double prefill_seconds = 0;
    double first_block_seconds = 0; // from the call to the first block's text
    double decode_seconds = 0;      // behind the prefill
};

struct DecodeResult {
    std::vector<int> ids; // without the stop token
    Finish finish = Finish::none;
    int stop_id = -1;              // the stop token that ended the text
    std::vector<LogProb> logprobs; // of ids, where they are asked for
    DecodeCounters counters;
};

// In a block that `prompt` or the state leaves open the tokens that are there stay, and the rest is generated first.
// Commits `prompt` behind the state and generates; `drafter` (may be null) serves mode speculative. A cancelled call
// returns the blocks that were reported; an error or a tick that throws leaves the state at the end of the last commit.
// `constraint` (may be null): what the text must follow; it has been told of none of it.
// Throws ArgumentError, ContextLengthError (prompt and budget exceed the state's capacity), UnsupportedModel (diffusion
// of an autoregressive model) and MemoryError before any work.
DecodeResult generate(Model &, State &, const std::vector<int> &prompt, const DecodeOptions &, const Listener &,
                      const Tick &, const DraftModel *drafter = nullptr, Constraint *constraint = nullptr);

} // namespace clover

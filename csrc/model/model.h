// A loaded model and what can be done with it. One call at a time: a pass uses the model's own scratch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/block.h"
#include "model/executor.h"
#include "model/scratch.h"
#include "model/spec.h"
#include "model/state.h"
#include "model/weights.h"

namespace clover {

struct ModelOptions {
    int threads = 0;           // 0: as many as the machine lends (thread_pool.h)
    std::string isa;           // empty: the best that this processor runs
    bool delta_closed = false; // commits of two rows and more use the closed form
    KvFormat kv = KvFormat::f32;
    // Experts are asked from disk whenever they are chosen, not just the first time; unset: where memory cannot hold
    // all.
    std::optional<bool> read_ahead;
    bool mmap = true;                   // weights mapped from their files, or else copied into memory on huge pages
    std::shared_ptr<Executor> executor; // computes the passes, and there are no weights; null: the kernels do
};

// Totals since the model was loaded; a caller takes differences.
struct Counters {
    int64_t rows = 0;            // rows of all passes
    int64_t experts_touched = 0; // distinct routed experts, summed over layers and passes
    int64_t bytes_read = 0;      // weight bytes that the passes read
};

enum class Logits { none, last, all };

class Model;

struct PreviewOptions {
    int coreset = 0; // experts that the block may use; 0: all
    int width = 0;   // rows that the history's logit counts; 0: the block's own
    // What the block's previews keep from step to step; its coreset is then its first preview's. May be null.
    Block *block = nullptr;
    // Rows that are computed, ascending: of [state.open | ids]. The others are taken as `block` keeps them from the
    // preview before. Null: all.
    const std::vector<int> *rows = nullptr;
    const float *soft = nullptr;  // [n, H] of self-conditioning: what the preview before left; null: there was none
    const Model *words = nullptr; // a drafter's target, whose embedding the rows start as; else null
    double coreset_share = 0;     // of the experts that the rows computed would choose, how many they use; 0: all
};

// Called between passes; throws to stop.
using Tick = std::function<void()>;

// Called behind each half of each layer, with scratch as the half left it, `rows` rows.
enum class Half { mixer, feed_forward };
using Observer = std::function<void(int layer, Half, int rows)>;

class Model {
  public:
    // Throws FormatError, UnsupportedError (model or processor, or what an executor does not compute), and MemoryError
    // where the dense weights cannot stay in memory.
    Model(const Spec &, const std::vector<std::string> &files, const std::vector<TensorRow> &table,
          const ModelOptions &);

    // Bytes of a state for `max_tokens` tokens, and of the working memory of its passes.
    struct Needs {
        int64_t state, working;
    };
    Needs needs(int64_t max_tokens) const;

    // An empty state for at most `max_tokens` tokens. Throws ContextLengthError, MemoryError.
    State new_state(int64_t max_tokens) const;

    // The forward over `ids` under the spec's mask, stored in the state. Long inputs run in chunks of kChunkRows
    // rows; the result does not depend on how a sequence is split: a block that `ids` left open is computed anew with
    // what follows, and one that the last preview has computed costs no pass. Only with blocks that count from the end
    // of a commit the split says where they lie. Writes [n or 1, vocab_size] to `logits`. `rollback` lets truncate()
    // return to any row of this commit; at most kChunkRows rows; UnsupportedModel with a block mask. A tick that throws
    // leaves the state after the last whole chunk. Under a full mask a text is taken down and nothing computed but the
    // logits asked for.
    void commit(State &, const std::vector<int> &ids, Logits, bool rollback, float *logits, const Tick &tick);

    // One denoising pass over a block behind the state, which stays as it is. Leaves the last layer's
    // output in scratch.h, for the functions of head.h: [state.open + n, H], the rows of an open block in front, or of
    // options.rows alone. Throws UnsupportedModel where the spec has no preview, ArgumentError for rows that `block`
    // does not keep.
    void preview(State &, const std::vector<int> &ids, const PreviewOptions &);

    // commit(ids), then preview(block), in one pass over the weights: row by row the same numbers. Returns how many
    // rows stand in front of the preview's in scratch.h. With a block mask `ids` end a block.
    int commit_and_preview(State &, const std::vector<int> &ids, const std::vector<int> &block, const PreviewOptions &);

    // The commit of a drafter: outputs [rows, layers, H] of the layers that it drafts for become keys and values of
    // its own, at most kChunkRows rows.
    void commit_context(State &, const float *outputs, int rows);

    // Back to position 0, or to any row of the last commit made with rollback: the state is then the one
    // that committing only the rows before it would have left. Bit for bit in the sequential form; in the
    // closed one but for a commit of one row, which is sequential. Under a full mask to any position.
    void truncate(State &, int64_t position);

    // State::rewind, or truncate where the last commit can be taken back in part.
    void rewind(State &, int64_t position);

    // Room for at most `max_tokens` tokens, no fewer than there are. Throws ContextLengthError, MemoryError.
    void extend(State &, int64_t max_tokens) const;

    // Logits [vocab_size] of the last committed row. It must be known (State::decided), and the mask not full.
    void last_logits(const State &, float *logits);

    void check_ids(const std::vector<int> &ids, bool mask_allowed) const;
    void check_coreset(int coreset, double share) const;
    // Throws ArgumentError where this one cannot draft for `target`, UnsupportedModel where it drafts for none.
    void check_drafts_for(const Model &target) const;
    void require_words() const;   // throws UnsupportedModel where the model is a drafter
    void require_preview() const; // throws UnsupportedModel where the model is autoregressive
    // Throws UnsupportedModel naming what only passes by the kernels have, where there is an executor.
    void require_kernels(const std::string &what) const;

    const Spec spec;
    const std::shared_ptr<Executor> executor; // may be null
    const Weights weights;
    const Kernels &kernels;
    ThreadPool pool;
    Scratch scratch;
    Counters counters;
    Observer observer; // may be empty; for calibration and comparisons
    const bool delta_closed;
    const KvFormat kv_format;
    const bool read_ahead;
    std::vector<char> asked;                  // [layers, E] experts that the disk was asked for
    const std::vector<double> inv_freq;       // [rotary_dim / 2]
    const std::vector<double> local_inv_freq; // of layers with a window; empty: the same

    static constexpr int kChunkRows = 128; // of one pass of a commit
    static constexpr int kMaxBlock = 1024; // rows of a preview, but under a full mask

  private:
    void check_capacity(int64_t least, int64_t max_tokens, int64_t held) const;
    void check_commit(const State &, const std::vector<int> &ids) const;
    void check_preview(const State &, const std::vector<int> &ids, const PreviewOptions &) const;
    void commit_text(State &, const std::vector<int> &ids, Logits, float *logits, const Tick &);
    int run_preview(State &, const std::vector<int> &ids, const std::vector<int> &block, const PreviewOptions &);
};

} // namespace clover

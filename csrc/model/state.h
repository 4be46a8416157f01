// What one sequence carries: keys and values of the attention layers, recurrent matrices and convolution
// rings of the DeltaNet layers, and the last committed row.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "model/buffer.h"
#include "model/spec.h"

namespace clover {

// Of one attention layer. The rows behind the committed ones are working space of a pass.
struct KvCache {
    Buffer<uint8_t> k, v; // [reserved rows, nkv, kv_bytes(format, hd)] of the layer's shape, k rotated
};

// Of one DeltaNet layer.
struct DeltaState {
    Buffer<float> S;    // [Hv, dk, dv]
    Buffer<float> ring; // [taps - 1, C] the last rows in front of the convolution, oldest first
};

// What a commit with rollback keeps of one DeltaNet layer: the state before it, and what its rows did.
struct DeltaRecord {
    Buffer<float> S, ring;
    Buffer<float> M;       // [rows, C] in front of the convolution
    Buffer<float> kv;      // [rows, Hk*dk + Hv*dv] behind it, k normalised
    Buffer<float> g, beta; // [rows, Hv]
};

// A point that a state can go back to: all of the state but the rows of its caches, which are the state's own still.
struct Mark {
    int64_t position = 0;
    std::vector<int> open;
    bool cut = false;              // as State::cut
    bool asked = false;            // by a caller, not by the distance to the mark before
    std::vector<DeltaState> delta; // by layer; empty at attention layers
    Buffer<float> hidden;

    int64_t settled() const { return position - int64_t(open.size()); }
};

// Which marks a state leaves by itself, and what they may take.
struct Marking {
    int64_t every = 0;         // tokens between them; 0: none is left
    int64_t bytes = INT64_MAX; // of all marks, the newest aside: the others make room
};

struct Rollback {
    int64_t start = 0;              // position before the recorded commit
    bool cut = false;               // as State::cut, at `start`
    int rows = 0;                   // 0: nothing recorded
    std::vector<DeltaRecord> delta; // by layer; empty at attention layers
    Buffer<float> hidden;           // [1 + rows, H]: the row before the commit, then its rows
};

void copy_delta(const std::vector<DeltaState> &from, std::vector<DeltaState> &to);

class State {
  public:
    State(const Spec &spec, int64_t capacity, KvFormat format);
    State(State &&) = default;
    State &operator=(State &&) = default;

    int64_t position = 0; // committed tokens
    // The last of them, where they end within a block of a block mask: their outputs depend on what will follow in
    // the block, so passes that follow compute them again. Their keys and values are working space, too. Under a full
    // mask they are all of them.
    std::vector<int> open;
    int64_t capacity; // most tokens that may be committed
    KvFormat format;  // of the caches
    // A commit that an error ended half way leaves layers at different positions: nothing but restore()
    // and reset() may follow.
    bool broken = false;
    int64_t passes = 0;            // so far: the working space is the last one's
    std::vector<KvCache> kv;       // by layer; empty at DeltaNet layers
    std::vector<DeltaState> delta; // by layer, in front of `open`; empty at attention layers
    // Of the last preview under a block mask without DeltaNet layers, where nothing was committed since: its ids (those
    // of the open block in front) and [H] its last row's output. Its keys and values are what a commit of these ids
    // would store.
    std::vector<int> previewed;
    Buffer<float> previewed_hidden;
    // [H] output of the last layer at the last committed row, meaningful where position > 0. The row's
    // logits follow from it; keeping it instead of them spares a pass over the head for every commit
    // whose logits nobody asks for.
    Buffer<float> hidden;
    // The last row was cut off, and `hidden` is of another one: until the next commit nobody may read it.
    bool cut = false;
    Rollback rollback;
    std::vector<Mark> marks; // ascending; none where states need none to go back
    Marking marking;
    // Layers whose output passes keep of the rows that they commit, ascending, and that of the last pass, [n, layers,
    // H]: what a drafter reads.
    std::vector<int> kept_layers;
    Buffer<float> kept;

    int64_t settled() const { return position - int64_t(open.size()); } // committed tokens whose keys are kept
    // Whether rewind() may go anywhere: what is kept of a token depends on nothing behind it but its own block.
    bool cuttable() const { return !spec_.has(LayerKind::deltanet) && !spec_.blocks_from_ends(); }
    bool decided() const { return position > 0 && !cut; } // whether `hidden` is the last row's

    void require_whole() const; // throws Error where it is broken

    // Room for `rows` rows of keys and values, committed or not. Throws MemoryError.
    void reserve(int64_t rows);

    // Room for what a pass keeps of `rows` rows. Throws MemoryError.
    void reserve_kept(int rows);

    void reset();           // position 0
    State snapshot() const; // without marks
    // Becomes a copy of `from`, a state of the same model, within this one's own capacity. Its marks are gone.
    void restore(const State &from);

    // Leaves a mark here, unless rewind() needs none. Memory that is not there leaves none.
    void mark(bool asked);
    void mark_if_due(); // the same, where `marking` asks for it
    // Goes back to the last point at or before `position` that there is, and drops the marks behind it. Without
    // DeltaNet layers and blocks that count from the ends of commits that is `position` itself, or the start of its
    // block where the ids of that are no longer known; else a mark; else 0.
    void rewind(int64_t position);
    void drop_marks_behind(int64_t position);
    // A copy that has gone back so, and the marks up to there. Throws MemoryError.
    State fork(int64_t position) const;

    // Copies the recurrent part into the record of a commit of `rows` rows that is about to run.
    void begin_rollback(int rows);
    void drop_rollback();

    int64_t bytes() const;
    // Bytes of a state that has reserved `rows` rows.
    static int64_t bytes(const Spec &spec, KvFormat format, int64_t rows);

    int64_t kv_row_bytes(int layer) const; // of keys or values of one token

  private:
    void copy_point(const State &from);
    void copy_rows(const State &from, int64_t rows);
    void cut_at(int64_t position);
    void take(Mark &mark, int64_t position);
    int64_t marks_bytes() const;
    void thin_marks();

    Spec spec_;
    int64_t reserved_ = 0;
};

} // namespace clover

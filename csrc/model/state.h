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

struct Rollback {
    int64_t start = 0;              // position before the recorded commit
    int rows = 0;                   // 0: nothing recorded
    std::vector<DeltaRecord> delta; // by layer; empty at attention layers
    Buffer<float> hidden;           // [1 + rows, H]: the row before the commit, then its rows
};

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
    Rollback rollback;
    // Layers whose output passes keep of the rows that they commit, ascending, and that of the last pass, [n, layers,
    // H]: what a drafter reads.
    std::vector<int> kept_layers;
    Buffer<float> kept;

    int64_t settled() const { return position - int64_t(open.size()); } // committed tokens whose keys are kept

    // Room for `rows` rows of keys and values, committed or not. Throws MemoryError.
    void reserve(int64_t rows);

    // Room for what a pass keeps of `rows` rows. Throws MemoryError.
    void reserve_kept(int rows);

    void reset(); // position 0
    State snapshot() const;
    // Becomes a copy of `from`, a state of the same model, within this one's own capacity.
    void restore(const State &from);

    // Copies the recurrent part into the record of a commit of `rows` rows that is about to run.
    void begin_rollback(int rows);
    void drop_rollback();

    int64_t bytes() const;
    // Bytes of a state that has reserved `rows` rows.
    static int64_t bytes(const Spec &spec, KvFormat format, int64_t rows);

    int64_t kv_row_bytes(int layer) const; // of keys or values of one token

  private:
    void copy_from(const State &from);

    Spec spec_;
    int64_t reserved_ = 0;
};

} // namespace clover

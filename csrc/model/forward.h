// One pass of the model and the steps it is made of. Internal to csrc/model.
#pragma once

#include <atomic>

#include "model/grid.h"
#include "model/model.h"

namespace clover {

// Rows that one piece of work takes through attention, and the places that they see: [begin, end) of the pass beside
// everything in front of it; `causal`: those up to themselves.
struct Span {
    int row0, rows, begin, end;
    bool causal;
};

// Rows [row0, row0 + rows) of a pass, which go through the products together; its spans' rows count from row0.
struct Chunk {
    int row0, rows;
    std::vector<Span> spans;
};

// The rows of a pass: first those that a commit stores, then those of a block that a preview looks at. Either may be
// none. The block's rows read what the commit leaves: in each layer it goes first.
struct Pass {
    Model &model;
    State &state;              // a preview uses the rows of its caches behind the committed ones as working space
    std::vector<int> ids;      // [N]
    std::vector<int> place;    // [N] positions behind `start`, ascending
    int64_t start;             // position of the first row
    int total;                 // N, rows of the pass
    std::vector<Chunk> chunks; // one, but under a full mask, whose passes may be long
    int row0 = 0, rows = 0;    // the chunk at hand, n rows
    int committed;             // leading rows that a commit stores
    int block_rows = 0;        // of the block behind them, computed here or kept by `block`
    Block *block = nullptr;    // preview: what is kept from step to step; may be null
    int settled;               // leading rows of the commit that move the recurrent states on; the others run on copies
    const Model *words = nullptr;  // preview of a drafter: whose embedding rows it starts as
    const float *soft = nullptr;   // preview: [n, H] mean embeddings of the one before; null: there is none
    int coreset = 0;               // preview: experts that the block may use; 0: all
    double coreset_share = 0;      // preview: of those that its rows would choose, how many it uses; 0: all
    double history_width = 0;      // preview: rows that the history's logit counts
    std::atomic<int> bad_half{-1}; // first half layer (2 layer + half) whose output is not finite

    // A commit of ids [rows], then, with `block_ids`, a preview behind it of those at options.rows (null: all). Behind
    // the state, over the ids of its open block, too, if it has one: `ids` or, where there is no commit, `block_ids`
    // start with them. `grid` counts where the mask has blocks.
    Pass(Model &, State &, const int *ids, int rows, const std::vector<int> &block_ids, const PreviewOptions &options,
         const BlockGrid &grid);

    // Calls body() with one chunk after the other at hand.
    template <class Body> void each_chunk(Body &&body) {
        for (at_ = 0; at_ < chunks.size(); at_++) {
            take(chunks[at_]);
            body();
        }
        at_ = 0;
        take(chunks[0]);
    }
    const std::vector<Span> &spans() const { return chunks[at_].spans; } // of attention

    // Rows of the chunk at hand in what scratch keeps of the whole pass.
    float *h() const { return model.scratch.h.data() + row0 * int64_t(model.spec.hidden_size); }
    float *y() const { return model.scratch.y.data() + row0 * int64_t(model.spec.hidden_size); }
    float *proj(const AttentionShape &s) const { return model.scratch.proj.data() + row0 * int64_t(s.in_rows()); }
    const LayerWeights &layer(int i) const { return model.weights.layers[size_t(i)]; }
    bool has_coreset() const { return coreset > 0 && coreset < model.spec.num_experts; }
    int previewed() const { return total - committed; } // rows that a preview computes
    // Cosines and sines of the pass's angles in a layer, [n, rotary_dim].
    const float *angles(int layer) const;
    // The rows of a pass recorded for truncate(), else null.
    DeltaRecord *record(int i) const;
    // Products with dense matrices, counted.
    void multiply(const std::vector<Product> &);

  private:
    void take(const Chunk &chunk) {
        row0 = chunk.row0;
        rows = chunk.rows;
    }

    size_t at_ = 0;
};

// scratch.h [N, H] <- the residual stream behind the last layer. A commit writes the layers' states; the
// state's position, last row and record are the caller's to update. Throws Error naming the layer
// whose output is not finite.
void forward(Pass &);

// The same by the model's executor.
void execute(Pass &);

// What rows see of each other in a mixer: attention's keys and values, from scratch.x [n, H]. (DeltaNet's rows are one
// chunk, whose mixer does it all.)
void mixer_inputs(Pass &, int layer);

// The two halves of a layer. Each, and each of their kinds, reads scratch.x [n, H] and writes y [n, H].
void mixer(Pass &, int layer);
void feed_forward(Pass &, int layer);
void attention_inputs(Pass &, int layer);
void attention_layer(Pass &, int layer);
void context_layer(Pass &, int layer); // x [n, H] becomes keys and values, and nothing else happens
void delta_layer(Pass &, int layer);
void sparse_experts(Pass &, int layer);
void dense_feed_forward(Pass &, int layer);
void dense_beside_experts(Pass &, int layer);

// scratch.rope <- cosines and sines of the rows' angles.
void set_angles(Pass &);

// h [n, H], embedding rows, <- rmsnorm(h + feed-forward of the pass's soft rows): self_conditioning.cc.
void condition(Pass &);

// x [n, H] <- rmsnorm(h) and its codes
void normalise(Pass &, const float *norm, Forms forms);

// y [n, H] <- rmsnorm(y), where there is a norm
void norm_output(Pass &, const float *norm);

// y [n, H] <- down(act(gate(x)) * up(x)), of any width
void gated_feed_forward(Pass &, const DenseWeights &);

// out <- act(gate) * up, the activation being the spec's.
void activate(const Model &, const float *gate, const float *up, int64_t ld, int rows, int n, float *out);

// inner [n, Id] <- act(gate) * up of one row of scratch.gate_up, and its codes
void gate_row(Model &, int64_t row, Forms forms);

// The DeltaNet part of truncate(): recorded layers go back to the start of the record, then forward by `rows`.
void replay_delta(Model &, State &, int rows);

} // namespace clover

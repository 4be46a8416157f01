// Working memory of a pass, sized once for the largest number of rows seen. n: rows of a chunk of the pass, N: of all.
#pragma once

#include <cstdint>
#include <vector>

#include "model/linear.h"
#include "model/spec.h"
#include "model/weights.h"

namespace clover {

// One expert and the pairs (row, expert) that it computes: [first, first + rows) of the grouped list.
struct ExpertCall {
    int expert, first, rows;
};

// Forms of scratch.x that a layer's mixer and the parts of its feed-forward read.
Forms mixer_forms(const LayerWeights &);
Forms dense_forms(const LayerWeights &);
Forms expert_forms(const LayerWeights &);

class Scratch {
  public:
    Scratch(const Spec &, const Weights &, int threads);

    // Room for chunks of `rows` rows of a pass of `total`; 0: one chunk. Throws MemoryError before anything is
    // allocated.
    void reserve(int rows, int total = 0);
    int64_t bytes(int rows, int total = 0) const;
    int rows() const { return rows_; } // that a chunk may have

    Buffer<float> h; // [N, H] the residual stream
    Buffer<float> y; // [N, H] what a layer's half adds to it
    Input x;         // [n, H] normalised h

    Input context; // [n, layers H] of a drafter: what its target's layers put out

    Buffer<float> rope; // [N, rotary_dim] cosines, then sines, of each row's angles; behind them the local ones
    Buffer<float> proj; // [N, in_rows] of an attention layer, or [n, delta_in_rows]
    Input mixed;        // [n, nh*hd] or [n, Hv*dv] heads' outputs

    Buffer<float> ba;          // [n, 2 Hv]
    Buffer<float> g, beta;     // [n, Hv]
    Buffer<float> conv;        // [n, C] q, k, v behind the convolution
    Buffer<float> delta_state; // [threads, dk*dv] a head's copy of S, for rows that do not move it on
    Buffer<float> mixer_work;  // one share per thread
    int64_t mixer_share = 0;   // floats in a share
    Buffer<float> kv_row;      // [n, nkv*hd] keys before they are stored; behind a row's, normalised values
    std::vector<float> ones;   // [H or more] the weight of norms that have none

    Buffer<float> router;                  // [n, E] logits, then probabilities
    Buffer<float> router_choice;           // [n, E] what experts are chosen by; empty: their probabilities
    Buffer<int> top_id, pair_of;           // [n, top_k] experts of a row by rank; their places in the list
    Buffer<float> top_weight;              // [n, top_k]
    Buffer<int> pair_row;                  // [n * top_k] rows of the grouped list
    std::vector<ExpertCall> calls;         // by expert
    std::vector<char> coreset, allowed;    // [E] experts that a block, a pass may use
    Buffer<float> gate, up;                // [n * top_k, I]
    Input expert;                          // [n * top_k, I]
    Buffer<float> pair_out;                // [n * top_k, H]
    Buffer<float> shared_gate, shared_out; // [n, 1], [n, H]
    Buffer<float> gate_up;                 // [n, 2 Is] or [n, 2 Id]
    Input inner;                           // [n, Is] or [n, Id] act(gate) * up
    Buffer<float> beside;                  // [n, H] a dense feed-forward's output, while its experts run

    // Self-conditioning: what the last preview made of its rows, and a chunk of the sums that this takes.
    Buffer<float> soft;         // [n, H] mean embeddings
    Buffer<float> soft_weights; // [n, kSoftChunk] probabilities
    Buffer<float> soft_columns; // [H, kSoftChunk] embedding rows, as columns

    Buffer<HeadStats> head_parts; // [head_stripes, n]
    Buffer<float> head_work;      // [threads, head_scratch_floats(n)]

  private:
    int64_t mixer_floats(int rows) const; // what mixer_share becomes
    // Calls buffer(b, length) or input(in, rows, width, forms) for everything that grows with the rows.
    template <class Self, class OnBuffer, class OnInput>
    static void visit(Self &self, int64_t rows, int64_t total, int64_t mixer_floats, OnBuffer &&buffer,
                      OnInput &&input);

    Spec spec_;
    bool passes_;                           // are computed here, by weights
    std::vector<AttentionShape> attention_; // of the attention layers
    Forms x_forms_ = 0, mixed_forms_ = 0, expert_forms_ = 0, inner_forms_ = 0, context_forms_ = 0;
    int threads_;
    int rows_ = 0, total_ = 0;
};

// Rows of a pass that one piece of work takes through attention: what they accumulate stays in the second cache.
constexpr int kAttentionRows = 16;

// Ids whose embeddings a mean takes at a time: eight stripes of the head.
constexpr int kSoftChunk = 8 * kHeadStripe;

// Tiles of the head that one piece of work takes: five stripes.
constexpr int kHeadRangeTiles = 5 * kHeadStripe / kTileRows;

} // namespace clover

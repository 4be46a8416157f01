// Named views into the mapped files. Nothing is copied; every shape, offset and size is re-checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "kernels/kernels.h"
#include "model/spec.h"

namespace clover {

// One row of the table that the caller hands over.
struct TensorRow {
    std::string name, scheme;
    std::vector<int64_t> shape;   // [n], [n, k], or [E, n, k] for a part of the expert records
    int64_t group = 0;            // columns that share a scale; 0 for f32/bf16
    int64_t file = 0;             // index into the list of files
    int64_t offset = 0;           // of the data, or of the part in the first record
    int64_t bytes = 0;            // of the data, or of the part in one record
    int64_t stride = 0;           // from record to record; 0 when there are none
    std::vector<int8_t> codebook; // values of the 16 codes, ascending; codebook4 only
};

// The same part of every expert's record.
struct ExpertPart {
    Matrix first;
    int64_t stride;

    Matrix at(int expert) const {
        Matrix w = first;
        w.data = static_cast<const uint8_t *>(first.data) + expert * stride;
        return w;
    }
};

struct AttentionWeights {
    Matrix in;                       // [in_rows, H]: q, gate, k, v, as far as the layer has them
    Matrix out;                      // [H, nh*hd]
    const float *in_bias, *out_bias; // of these rows; null without
    const float *q_norm, *k_norm;    // [hd]; null without
};

struct DeltaWeights {
    Matrix in;                                           // [C + Hv*dv, H]: q, k, v, z
    Matrix ba;                                           // [2 Hv, H]: b, a
    Matrix out;                                          // [H, Hv*dv]
    const float *conv, *conv_right;                      // [C, taps], [C, taps - 1]
    const float *A_log, *dt_bias;                        // [Hv]
    const float *norm;                                   // [dv]
    const float *logit_scale, *history_bias, *history_c; // [Hv]; these and conv_right: null but for operators
};

struct MoeWeights {
    Matrix router;                      // [E, H]
    ExpertPart gate, up, down;          // [I, H], [I, H], [H, I]
    Matrix shared_gate_up, shared_down; // [2 Is, H], [H, Is]
    Matrix shared_gate;                 // [1, H]; empty without
    const float *router_bias;           // [E]; null without
    const float *router_norm;           // [H]; null: the router reads what the experts read
    const float *scales;                // [E], on the chosen experts' weights; null without
};

struct DenseWeights {
    Matrix gate_up, down; // [2 Id, H], [H, Id]
};

struct LayerWeights {
    LayerKind kind;
    FeedForward feed_forward;
    const float *norm1, *norm2;           // [H]
    const float *post_norm1, *post_norm2; // [H], of the halves' outputs; null without
    // Of experts beside a dense feed-forward, [H]: in front of the experts, and behind each of the two. Else null
    const float *expert_norm, *dense_post_norm, *expert_post_norm;
    float commit_scale, preview_scale; // on what leaves the layer; 1 without
    AttentionWeights attn;             // filled where kind is attention
    DeltaWeights delta;                // filled where kind is deltanet
    MoeWeights moe;                    // filled where feed_forward has experts
    DenseWeights dense;                // filled where feed_forward has a dense part

    bool has_experts() const { return feed_forward != FeedForward::dense; }
    bool has_dense() const { return feed_forward != FeedForward::experts; }
};

struct SelfConditioning {
    const float *norm;    // [H]; null: the model has none
    DenseWeights forward; // [2 Is, H], [H, Is]
};

// Of a drafter: what its target's layers put out becomes its context.
struct ContextWeights {
    Matrix in;         // [H, n H]
    const float *norm; // [H]
};

struct Weights {
    std::vector<FileMap> files;
    std::set<std::array<int8_t, 16>> codebooks; // what Matrix.codebook points to; a set's nodes never move
    Matrix embed{}, head{};                     // [V, H]; the same matrix when tied; a drafter has neither
    ContextWeights context{};                   // filled where it is a drafter
    const float *final_norm;
    SelfConditioning self_conditioning{};
    std::vector<LayerWeights> layers;
    int64_t bytes = 0;       // of all tensors in the table
    int64_t dense_bytes = 0; // of those that every pass reads; experts may stay on disk

    // Asks the system to read a mapped matrix from disk ahead of its use.
    void will_need(const Matrix &) const;
};

// Stored size of a matrix: what a product with it reads.
int64_t matrix_bytes(const Matrix &);

// Its rows from `first` on, a multiple of kTileRows.
Matrix rows_from(const Matrix &, int first);

// The scheme of that name in a packed folder.
std::optional<Scheme> scheme_named(const std::string &name);

// Bytes of the files together; one that cannot be examined counts nothing.
int64_t file_bytes(const std::vector<std::string> &files);

// `copy`: into memory, rather than mapped. Throws FormatError naming the file and the tensor: missing, surplus or
// repeated tensors, a shape, scheme, group or codebook that does not fit, data outside the file or off a 64-byte
// boundary, a value that is not finite in a vector.
Weights load_weights(const Spec &, const std::vector<std::string> &files, const std::vector<TensorRow> &table,
                     bool copy);

} // namespace clover

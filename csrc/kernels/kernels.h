// The kernel table: one row per operation, one file per instruction set, chosen once at load.
//
// Plain data and function pointers only. Files compiled for a wider instruction set include this header,
// <stdint.h> and the instruction set's own (<immintrin.h>, <arm_neon.h>), nothing else, and keep every function in
// an anonymous namespace: an inline function emitted there could be picked by the linker for everybody.
//
// One rule for all: the result of a row depends neither on the number of rows in the call nor on
// the range of tiles or heads that a call is given (accumulation order is fixed along K).
#pragma once

#include <stdint.h>

namespace clover {

enum class Scheme : int { f32 = 0, bf16 = 1, int8 = 2, int4 = 3, codebook4 = 4, int3 = 5 };
constexpr int kSchemes = 6;

constexpr int kTileRows = 16;    // rows of a packed tile; quant/tiles.py states the layout
constexpr int kHeadStripe = 192; // ids whose logits a pass over the head holds, and reduces, at a time

// A matrix W [n, k] as stored. f32/bf16: row major. The others: tiles of 16 rows (n padded with zero
// rows), per tile and group of `group` columns: 16 f16 scales, then the codes in 64-byte chunks.
struct Matrix {
    const void *data;
    Scheme scheme;
    int n, k, group;                  // group = 0 for f32/bf16
    const int8_t *codebook = nullptr; // [16] values of the codes; codebook4 only
};

// `rows` activation rows in the two forms that kernels read.
struct Activations {
    const float *x;       // [rows, k] row major with stride `ldx`; used by f32/bf16 weights
    int ldx;              //
    const int8_t *q;      // [rows, k] codes in [-127, 127] with stride `ldq`; used by packed weights
    int ldq;              // padded_row(k)
    const float *scale;   // [rows, k/block] x ~= q * scale
    const int32_t *start; // [rows, k/group] -zero_point * sum of a weight group's codes: where its dot product starts
    int rows, k;
    int block; // columns that share a scale: block_of(k), a multiple of the weights' group
};

// Columns of activations that share a scale: as wide as the rounding error of int4 weights drowns, since
// the kernels pay for every block (docs/performance.md).
constexpr int block_of(int k) { return k % 128 == 0 ? 128 : k % 64 == 0 ? 64 : 32; }

// Bytes from one row of codes to the next: rows a power of two apart would compete for few cache sets.
constexpr int padded_row(int k) { return k + 64; }

// A gathered matmul may read activation rows through an index (experts): row r of the call is row
// `index[r]` of the activations; nullptr means r itself.
struct MatmulCall {
    Matrix w;
    Activations a;
    const int *index;
    int rows; // rows of this call (== a.rows when index is null)
    float *y; // y[r * ldy + i] = sum_k W[i, k] x[row r, k], i in [tile0*16, min(tile1*16, n))
    int64_t ldy;
    int tile0, tile1; // tiles of 16 output rows, also for f32/bf16
};

struct DeltaHead { // one value head of a gated DeltaNet layer
    int dk, dv, rows;
    const float *q, *k; // [rows, dk], stride ldqk; l2-normalised, q also times dk^-1/2 in commit mode
    const float *v;     // [rows, dv], stride ldv
    int64_t ldqk, ldv;
    const float *g, *beta; // [rows] each, stride ldg
    int64_t ldg;
    float *state; // S [dk, dv] row major; commit: read and written; preview: read only
    float *o;     // [rows, dv], stride ldo
    int64_t ldo;
    float *scratch; // delta_scratch_floats(rows, dk, dv)
};

struct PreviewHead {     // the same head in preview mode
    DeltaHead d;         // q, k: l2-normalised, without the factor; g unused; beta used if value_beta
    int queries;         // leading rows of q and o; all rows are seen
    float logit_scale;   // on q_t . k_s
    float history_logit; // history_bias + history_c * ln(n / history_ref_rows)
    float history_scale; // factor on q in the history read-out S^T q
    bool value_beta;
};

// How keys and values are kept. int8: a head's part of a row is its scale (float), then its codes.
enum class KvFormat : int { f32 = 0, f16 = 1, int8 = 2 };

// Bytes of one head's part of a row.
constexpr int64_t kv_bytes(KvFormat format, int head_dim) {
    return format == KvFormat::f32   ? 4 * int64_t(head_dim)
           : format == KvFormat::f16 ? 2 * int64_t(head_dim)
                                     : 4 + int64_t(head_dim);
}

// One head's part of a row to its stored form (f16 saturates, NaN stays), and back.
void store_kv(KvFormat format, const float *x, int head_dim, uint8_t *out);
void load_kv(KvFormat format, const uint8_t *stored, int head_dim, float *out);

constexpr int kAttentionKeys = 64; // keys of one tile; tiles start at multiples of it for every row

struct AttentionHeads { // the query heads that share one key/value head, all rows
    int rows, heads, head_dim;
    const float *q; // [rows, heads, head_dim], row stride ldq
    int64_t ldq;
    KvFormat format;
    const uint8_t *k, *v; // this head's part of [past + rows] stored rows, ldkv bytes apart
    int64_t ldkv;         // (fresh rows of the pass already stand behind the committed ones)
    int past;             // committed rows before the first row of this pass
    bool causal;          // row r sees past + first + r + 1 keys; otherwise past + seen
    int first, seen;      // rows of the pass before the first row here, and all of them
    float scale;
    float *o; // [rows, heads, head_dim], row stride ldo
    int64_t ldo;
    float *scratch; // attention_scratch_floats(rows, heads, head_dim)
    // Nearest keys that a row sees: with its own where causal, else with the pass's first row. 0: all
    int window = 0;
};

// (1 + tanh(y)) / 2 = sigmoid(2 y): the tanh form of gelu is x sigmoid(linear x + cubic x^3).
constexpr float kGeluLinear = 1.5957691f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.071354813f; // 0.044715 times that

// What the head's logits become before anybody sees them. Real ids are those in [0, valid) but `banned`.
struct HeadRule {
    struct Penalty { // of a token that occurred
        int id;
        float subtract;
    };
    int valid, banned;                  // padding from `valid` on; banned: the mask, or -1
    float inverse_temperature = 1;      // of the sums
    float repetition = 1;               // divides a penalised token's positive logit, multiplies a negative one
    const Penalty *penalties = nullptr; // ascending ids
    int penalty_count = 0;              //
    float softcap = 0; // logits z become cap * tanh(z / cap) before penalties, NaN if infinite; 0: they stay
};

// What a pass over the head finds for one row and one stripe of ids.
struct HeadStats {
    int argmax;    // lowest id on ties; -1 when the stripe holds no real id (max -inf, sum 0)
    float max;     // logit of argmax; NaN when a real id's logit is NaN or +inf: the caller must raise
    float sum_exp; // sum over real ids of exp((logit - max) * inverse_temperature)
};

constexpr int head_stripes(int tiles) { return (tiles * kTileRows + kHeadStripe - 1) / kHeadStripe; }

struct Kernels {
    const char *isa;

    // What the kernels add to a stored code before they multiply; start values take it off again. By Scheme.
    int zero_point[kSchemes];

    // x [rows, k] -> q, scale as in Activations, and the sums of 32 codes, [rows, k/32]. k is a multiple of block.
    void (*quantize)(const float *x, int64_t ldx, int rows, int k, int block, int8_t *q, int ldq, float *scale,
                     int32_t *sum32);
    void (*matmul)(const MatmulCall &);
    // Row `row` of a stored matrix as floats (embedding look-up).
    void (*dequantize_row)(const Matrix &, int row, float *out);
    // out[r, i] = x[r, i] * rsqrt(mean(x^2) + eps) * (w[i] + offset)
    void (*rmsnorm)(const float *x, int64_t ldx, const float *w, float offset, float eps, int rows, int n, float *out,
                    int64_t ldo);
    // Per head h of width d: out = u * rsqrt(sum u^2 + 1e-6) * scale, u = x[r, h*d .. h*d + d). May work in place.
    void (*l2norm)(const float *x, int64_t ldx, int rows, int heads, int d, float scale, float *out, int64_t ldo);
    // out = silu(gate) * up, rows of width n
    void (*silu_mul)(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out,
                     int64_t ldo);
    // The same of gelu in its tanh form, gate * (1 + tanh(sqrt(2/pi) (gate + 0.044715 gate^3))) / 2 * up
    void (*gelu_mul)(const float *gate, int64_t ldg, const float *up, int64_t ldu, int rows, int n, float *out,
                     int64_t ldo);
    // Depthwise convolution and SiLU over channels [c0, c1): in = [ring | block].
    //   out[t, c] = silu(sum_j in[t + j, c] w[c, j] + sum_d block[t + 1 + d, c] right[c, d]), right may be null
    void (*conv)(const float *ring, const float *block, int64_t ldb, const float *w, const float *right, int rows,
                 int channels, int taps, int c0, int c1, float *out, int64_t ldo);
    // Token by token, a strip of S's columns at a time: bitwise the same however rows are split.
    void (*delta_commit)(const DeltaHead &);
    // The closed form over all rows at once (ARCHITECTURE: T = (I + L)^-1 ...).
    void (*delta_closed)(const DeltaHead &);
    void (*delta_preview)(const PreviewHead &);
    // o = rmsnorm_dv(o) * w * silu(z) per head of width dv, in place
    void (*gated_norm)(float *o, int64_t ldo, const float *z, int64_t ldz, const float *w, float eps, int rows,
                       int heads, int dv);
    void (*attention)(const AttentionHeads &); // online softmax
    // x *= sigmoid(gate)
    void (*sigmoid_mul)(float *x, int64_t ldx, const float *gate, int64_t ldg, int rows, int n);
    // Projection of rows by the head over tiles [tile0, tile1), reduced to statistics of its stripes; no logits kept
    // (y is not used). out [head_stripes(tile1 - tile0), rows]; scratch: head_scratch_floats(rows). A matrix without
    // data stands for logits that are known: they are the activations x.
    void (*head_stats)(const MatmulCall &, const HeadRule &, float *scratch, HeadStats *out);
    // The logits of one stripe, at most kHeadStripe ids from tile0, likewise: out [rows, kHeadStripe], -inf where no
    // real id is.
    void (*head_logits)(const MatmulCall &, const HeadRule &, float *out);
};

// Start values of `groups` groups of `group` columns from sums of 32.
void start_values(const int32_t *sum32, int groups, int group, int zero_point, int32_t *start);

int64_t delta_scratch_floats(int rows, int dk, int dv); // enough for commit, closed and preview
int64_t head_scratch_floats(int rows);
int64_t attention_scratch_floats(int rows, int heads, int head_dim);

// The best table this processor runs, or the one named by `force`/CLOVER_ISA
// ("reference" | "avx2" | "avxvnni" | "vnni256" | "avx512vnni" | "neon_dotprod" | "neon_i8mm"); throws UnsupportedError
// when the processor lacks it.
const Kernels &kernels(const char *force = nullptr);
// Names of the tables compiled in, best last; null-terminated.
const char *const *compiled_isas();
// Names of the tables compiled in that this processor can run, best last; null-terminated.
const char *const *available_isas();

} // namespace clover

// Products of activation rows with stored matrices, shared out over the threads by tiles of output rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/buffer.h"

namespace clover {

// Bit set of the group sizes 32, 64 and 128 in which rows are wanted as int8 codes.
using Groups = unsigned;
Groups groups_of(const Matrix &w); // one bit, or none for float weights

// Rows that one or more matrices read: as floats, and as codes once per group size.
class Input {
  public:
    void reserve(int64_t rows, int64_t k, Groups groups);
    static int64_t bytes(int64_t rows, int64_t k, Groups groups);
    // Sets the width of a row, at most what was reserved. Earlier contents are lost.
    void shape(int k) { k_ = k; }

    float *row(int64_t r) { return x_.data() + r * k_; }
    const float *row(int64_t r) const { return x_.data() + r * k_; }

    // Codes of columns [c0, c1) of one row; both are multiples of every group in `groups`.
    void quantize(const Kernels &, Groups groups, int64_t row, int c0, int c1);
    void quantize(const Kernels &kernels, Groups groups, int64_t row) { quantize(kernels, groups, row, 0, k_); }

    // Rows [first, first + rows) in the form that products with `w` read.
    Activations activations(const Matrix &w, int64_t first, int rows) const;

  private:
    struct Codes {
        Buffer<int8_t> q;
        Buffer<float> scale;
        Buffer<int32_t> sum;
    };
    int k_ = 0;
    Buffer<float> x_;
    Codes codes_[3]; // groups of 32, 64, 128
};

struct Product {
    Matrix w;
    Activations a;
    const int *index; // see MatmulCall
    int rows;
    float *y;
    int64_t ldy;
};

// A share of the work on call `call`: tiles [tile0, tile1) of its output rows.
struct Piece {
    int call, tile0, tile1;
};

struct Work {
    int tiles; // of the call's matrix
    int rows;  // activation rows
};

int tiles_of(int n); // tiles of 16 that cover n output rows

// Cuts calls into pieces that let `threads` threads finish together; cuts fall on multiples of `align`
// tiles. Results do not depend on where they fall (kernels.h).
void cut(const std::vector<Work> &calls, int align, int threads, std::vector<Piece> &out);

MatmulCall call_of(const Product &, int tile0, int tile1);

// All products, in one pass of the pool.
void multiply(const Kernels &, ThreadPool &, const std::vector<Product> &);

} // namespace clover

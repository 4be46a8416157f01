// Products of activation rows with stored matrices, shared out over the threads by tiles of output rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/buffer.h"

namespace clover {

// Bit set of the (group size, zero point) pairs whose start values (kernels.h) products will read.
using Forms = unsigned;
Forms form_of(const Matrix &w); // one bit, or none for float weights

// Rows that one or more matrices read: as floats, and as int8 codes.
class Input {
  public:
    void reserve(int64_t rows, int64_t k, Forms forms);
    static int64_t bytes(int64_t rows, int64_t k, Forms forms);
    // Sets the width of a row, at most what was reserved. Earlier contents are lost.
    void shape(int k) { k_ = k; }
    int width() const { return k_; }

    float *row(int64_t r) { return x_.data() + r * k_; }
    const float *row(int64_t r) const { return x_.data() + r * k_; }

    // Codes of columns [c0, c1) of one row; both are multiples of block_of(k). Nothing to do without forms.
    void quantize(const Kernels &, Forms forms, int64_t row, int c0, int c1);
    void quantize(const Kernels &kernels, Forms forms, int64_t row) { quantize(kernels, forms, row, 0, k_); }

    // Rows [first, first + rows) in the form that products with `w` read.
    Activations activations(const Matrix &w, int64_t first, int rows) const;

  private:
    static constexpr int kForms = 9;
    int k_ = 0;
    Buffer<float> x_, scale_;
    Buffer<int8_t> q_;
    Buffer<int32_t> sum32_, start_[kForms];
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

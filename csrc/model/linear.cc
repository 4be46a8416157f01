#include "model/linear.h"

#include <algorithm>

namespace clover {
namespace {

constexpr int kGroups[3] = {32, 64, 128};
constexpr Scheme kOffsets[3] = {Scheme::int4, Scheme::int8, Scheme::int3}; // codebook4 is offset like int8

int group_of(int form) { return kGroups[form / 3]; }

// Reading a tile's weights once costs about as much as this many rows of arithmetic.
constexpr int64_t kReadRows = 4;
constexpr int64_t kPiecesPerThread = 6;

int64_t cost(const Work &w) { return (w.rows + kReadRows) * w.tiles; }

} // namespace

Forms form_of(const Matrix &w) {
    if (!w.group)
        return 0;
    const int slot = w.group == 32 ? 0 : w.group == 64 ? 1 : 2;
    const int offset = w.scheme == Scheme::int4 ? 0 : w.scheme == Scheme::int3 ? 2 : 1;
    return 1u << (3 * slot + offset);
}

void Input::reserve(int64_t rows, int64_t k, Forms forms) {
    x_.resize(rows * k);
    q_.resize(forms ? rows * padded_row(int(k)) : 0);
    scale_.resize(forms ? rows * k / 32 : 0);
    sum32_.resize(forms ? rows * k / 32 : 0);
    for (int f = 0; f < kForms; f++)
        start_[f].resize(forms >> f & 1 ? rows * k / group_of(f) : 0);
}

int64_t Input::bytes(int64_t rows, int64_t k, Forms forms) {
    int64_t sum = rows * k * int64_t(sizeof(float));
    if (forms)
        sum += rows * padded_row(int(k)) + rows * k / 32 * int64_t(sizeof(float) + sizeof(int32_t));
    for (int f = 0; f < kForms; f++)
        if (forms >> f & 1)
            sum += rows * k / group_of(f) * int64_t(sizeof(int32_t));
    return sum;
}

void Input::quantize(const Kernels &kernels, Forms forms, int64_t row, int c0, int c1) {
    if (!forms)
        return;
    const int block = block_of(k_);
    const int64_t at = row * k_ + c0;
    kernels.quantize(x_.data() + at, k_, 1, c1 - c0, block, q_.data() + row * padded_row(k_) + c0, padded_row(k_),
                     scale_.data() + at / block, sum32_.data() + at / 32);
    for (int f = 0; f < kForms; f++)
        if (forms >> f & 1)
            start_values(sum32_.data() + at / 32, (c1 - c0) / group_of(f), group_of(f),
                         kernels.zero_point[int(kOffsets[f % 3])], start_[f].data() + at / group_of(f));
}

Activations Input::activations(const Matrix &w, int64_t first, int rows) const {
    const int block = block_of(k_);
    Activations a{row(first), k_, nullptr, padded_row(k_), nullptr, nullptr, rows, k_, block};
    for (int f = 0; f < kForms; f++)
        if (form_of(w) >> f & 1) {
            a.q = q_.data() + first * padded_row(k_);
            a.scale = scale_.data() + first * k_ / block;
            a.start = start_[f].data() + first * k_ / w.group;
        }
    return a;
}

int tiles_of(int n) { return (n + kTileRows - 1) / kTileRows; }

void cut(const std::vector<Work> &calls, int align, int threads, std::vector<Piece> &out) {
    out.clear();
    int64_t total = 0;
    for (const Work &w : calls)
        total += cost(w);
    const int64_t share = std::max<int64_t>(1, total / (threads * kPiecesPerThread));
    for (size_t i = 0; i < calls.size(); i++) {
        const int units = (calls[i].tiles + align - 1) / align;
        const int64_t wanted = threads == 1 ? 1 : (cost(calls[i]) + share - 1) / share;
        const int parts = int(std::min<int64_t>(wanted, units));
        for (int p = 0; p < parts; p++) {
            const int t0 = int(int64_t(units) * p / parts) * align;
            const int t1 = int(int64_t(units) * (p + 1) / parts) * align;
            out.push_back({int(i), t0, std::min(t1, calls[i].tiles)});
        }
    }
}

MatmulCall call_of(const Product &p, int tile0, int tile1) {
    return MatmulCall{p.w, p.a, p.index, p.rows, p.y, p.ldy, tile0, tile1};
}

void multiply(const Kernels &kernels, ThreadPool &pool, const std::vector<Product> &products) {
    std::vector<Work> work;
    std::vector<Piece> pieces;
    for (const Product &p : products)
        work.push_back({tiles_of(p.w.n), p.rows});
    cut(work, 1, pool.size(), pieces);
    pool.run(int64_t(pieces.size()), [&](int64_t i, int) {
        const Piece &piece = pieces[size_t(i)];
        kernels.matmul(call_of(products[size_t(piece.call)], piece.tile0, piece.tile1));
    });
}

} // namespace clover

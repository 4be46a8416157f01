#include "model/linear.h"

#include <algorithm>

namespace clover {
namespace {

constexpr int kGroups[3] = {32, 64, 128};
// Reading a tile's weights once costs about as much as this many rows of arithmetic.
constexpr int64_t kReadRows = 4;
constexpr int64_t kPiecesPerThread = 6;

int slot_of(int group) { return group == 32 ? 0 : group == 64 ? 1 : 2; }

int64_t cost(const Work &w) { return (w.rows + kReadRows) * w.tiles; }

} // namespace

Groups groups_of(const Matrix &w) { return w.group ? 1u << slot_of(w.group) : 0; }

void Input::reserve(int64_t rows, int64_t k, Groups groups) {
    x_.resize(rows * k);
    for (int s = 0; s < 3; s++) {
        const int64_t wanted = groups >> s & 1 ? rows * k : 0;
        codes_[s].q.resize(wanted);
        codes_[s].scale.resize(wanted / kGroups[s]);
        codes_[s].sum.resize(wanted / kGroups[s]);
    }
}

int64_t Input::bytes(int64_t rows, int64_t k, Groups groups) {
    int64_t sum = rows * k * int64_t(sizeof(float));
    for (int s = 0; s < 3; s++)
        if (groups >> s & 1)
            sum += rows * k + rows * k / kGroups[s] * int64_t(sizeof(float) + sizeof(int32_t));
    return sum;
}

void Input::quantize(const Kernels &kernels, Groups groups, int64_t row, int c0, int c1) {
    for (int s = 0; s < 3; s++) {
        if (!(groups >> s & 1))
            continue;
        const int64_t at = row * k_ + c0, scale_at = row * (k_ / kGroups[s]) + c0 / kGroups[s];
        kernels.quantize(x_.data() + at, k_, 1, c1 - c0, kGroups[s], codes_[s].q.data() + at,
                         codes_[s].scale.data() + scale_at, codes_[s].sum.data() + scale_at);
    }
}

Activations Input::activations(const Matrix &w, int64_t first, int rows) const {
    Activations a{row(first), k_, nullptr, nullptr, nullptr, rows, k_, w.group};
    if (w.group) {
        const Codes &c = codes_[slot_of(w.group)];
        a.q = c.q.data() + first * k_;
        a.scale = c.scale.data() + first * (k_ / w.group);
        a.sum = c.sum.data() + first * (k_ / w.group);
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

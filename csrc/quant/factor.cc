#include "quant/factor.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/error.h"

namespace clover::quant {

namespace {

constexpr int64_t kBlock = 64;  // columns factored before the rest is updated
constexpr int64_t kStrip = 8;   // columns of the rest whose sums stay in registers, for
constexpr int64_t kHeight = 4;  // rows at once
constexpr int64_t kBundle = 32; // rows of a thread's turn

// Lower Cholesky factor, in place, of the lower triangle of a [k, k]. Every element's sum runs over the columns in
// order, so the result does not depend on how the work is shared.
class Cholesky {
  public:
    Cholesky(ThreadPool &pool, double *a, int64_t k) : pool_(pool), a_(a), k_(k), across_(kBlock * (k + kStrip)) {}

    void run() {
        for (int64_t first = 0; first < k_; first += kBlock) {
            const int64_t last = std::min(first + kBlock, k_);
            for (int64_t i = first; i < last; ++i)
                solve_row(i, first, i + 1);
            const int64_t bundles = (k_ - last + kBundle - 1) / kBundle;
            const auto rows = [&](auto &&each) {
                pool_.run(bundles,
                          [&](int64_t b, int) { each(last + b * kBundle, std::min(last + (b + 1) * kBundle, k_)); });
            };
            rows([&](int64_t from, int64_t to) {
                for (int64_t i = from; i < to; ++i)
                    solve_row(i, first, last);
                turn(from, to, first, last);
            });
            rows([&](int64_t from, int64_t to) { update(from, to, first, last); });
        }
    }

  private:
    double *row(int64_t i) { return a_ + i * k_; }
    double *across(int64_t p) { return across_.data() + p * (k_ + kStrip); } // column p of the block, as a row

    // Columns [first, last) of row i, those before them being done.
    void solve_row(int64_t i, int64_t first, int64_t last) {
        double *x = row(i);
        for (int64_t c = first; c < last; ++c) {
            const double *l = row(c);
            double rest = x[c];
            for (int64_t p = first; p < c; ++p)
                rest -= x[p] * l[p];
            if (c < i) {
                x[c] = rest / l[c];
                continue;
            }
            if (!(rest > 0) || !std::isfinite(rest))
                throw ArgumentError("the Hessian is not positive definite");
            x[c] = std::sqrt(rest);
        }
    }

    void turn(int64_t from, int64_t to, int64_t first, int64_t last) {
        for (int64_t i = from; i < to; ++i)
            for (int64_t p = first; p < last; ++p)
                across(p - first)[i] = row(i)[p];
    }

    // Takes the block's columns out of the rest's rows [from, to), up to the diagonal and a little beyond.
    void update(int64_t from, int64_t to, int64_t first, int64_t last) {
        int64_t i = from;
        for (; i + kHeight <= to; i += kHeight)
            update_rows<kHeight>(i, first, last);
        for (; i < to; ++i)
            update_rows<1>(i, first, last);
    }

    template <int64_t height> void update_rows(int64_t i, int64_t first, int64_t last) {
        const int64_t end = i + height;
        for (int64_t j = last; j < end; j += kStrip) {
            double sum[height][kStrip] = {};
            for (int64_t p = first; p < last; ++p) {
                const double *l = across(p - first) + j;
                for (int64_t r = 0; r < height; ++r)
                    for (int64_t c = 0; c < kStrip; ++c)
                        sum[r][c] += row(i + r)[p] * l[c];
            }
            for (int64_t r = 0; r < height; ++r)
                for (int64_t c = 0; c < std::min(kStrip, end - j); ++c)
                    row(i + r)[j + c] -= sum[r][c];
        }
    }

    ThreadPool &pool_;
    double *a_;
    int64_t k_;
    std::vector<double> across_;
};

} // namespace

// Cholesky's lower factor, taken from the last column to the first, is the upper triangular factor.
template <class Real>
Factor::Factor(ThreadPool &pool, const Real *h, int64_t k, double damping) : k_(k), m_(size_t(k * k)), d_(size_t(k)) {
    double trace = 0;
    for (int64_t i = 0; i < k; ++i)
        trace += double(h[i * k + i]);
    const double added = damping * trace / double(k);
    if (!std::isfinite(trace) || !(trace > 0))
        throw ArgumentError("the Hessian has a trace of " + std::to_string(trace));
    const std::unique_ptr<double[]> a(new double[size_t(k * k)]);
    pool.run(k, [&](int64_t i, int) {
        const int64_t from = k - 1 - i;
        for (int64_t j = 0; j <= i; ++j) // h is symmetric: element [from][k - 1 - j] of its lower triangle
            a[i * k + j] = double(h[(k - 1 - j) * k + from]);
        a[i * k + i] += added;
    });
    Cholesky(pool, a.get(), k).run();
    pool.run(k, [&](int64_t j, int) {
        const double *l = a.get() + (k - 1 - j) * k;
        for (int64_t c = k - 1, i = 0; c >= j; --c, ++i)
            m_[size_t(j * k + c)] = float(l[i] / a[i * k + i]);
        const double pivot = l[k - 1 - j];
        d_[size_t(j)] = float(pivot * pivot);
    });
}

template Factor::Factor(ThreadPool &, const float *, int64_t, double);
template Factor::Factor(ThreadPool &, const double *, int64_t, double);

} // namespace clover::quant

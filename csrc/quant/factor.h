// The factor of a matrix's Hessian that error feedback needs.
//
// With H = M D M^T (M unit upper triangular, D diagonal), the error d H d^T of a row d = w - q is
// sum_k D_k (d_k + sum_{j<k} d_j M_jk)^2: whoever rounds column after column brings term k to its least by choosing
// q_k for w_k + sum_{j<k} d_j M_jk. That is GPTQ (Frantar et al., 2022) without the inverse of H, in the form of
// "LDLQ" (Chee et al., QuIP, 2023).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace clover::quant {

class Factor {
  public:
    // H [k, k], symmetric (its lower triangle is read), plus `damping` times the mean of its diagonal on the diagonal.
    // ArgumentError when H is not finite or not positive definite.
    template <class Real> Factor(ThreadPool &pool, const Real *h, int64_t k, double damping);

    int64_t k() const { return k_; }
    const float *m() const { return m_.data(); } // [k, k] row major; below the diagonal undefined
    const float *d() const { return d_.data(); } // [k]

  private:
    int64_t k_;
    std::vector<float> m_, d_;
};

} // namespace clover::quant

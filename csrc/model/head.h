// The projection onto the vocabulary, for the rows that somebody asks for.
#pragma once

#include <functional>
#include <vector>

#include "model/model.h"

namespace clover {

// hidden [.., H]: outputs of the last layer; rows: which of them, at most as many as scratch has room for.

// `normed_by`: the drafter that computed `hidden`, whose final norm it then is; null: the model itself.

// out [rows, vocab_size], padding ids and the mask id included. Throws Error when a value is not finite.
void head_logits(Model &, const float *hidden, const std::vector<int> &rows, float *out,
                 const Model *normed_by = nullptr);

// One pass of rows over the head, reduced to statistics stripe by stripe (kernels.h): no logits are kept. Those of
// single stripes are computed again for who wants to look closer, bit for bit the same.
class HeadPass {
  public:
    struct Visit { // of a row to a stripe
        int stripe, row;
    };
    using Look = std::function<void(size_t visit, int first_id, const float *logits, int count)>;

    // Uses the pool, `parts` [head_stripes, rows] and `work` [threads, head_scratch_floats(rows)], and keeps them all.
    // Throws Error when a real id's logit is not finite.
    HeadPass(const Kernels &, ThreadPool &, const Product &, const HeadRule &, HeadStats *parts, float *work);

    int rows() const { return product_.rows; }
    int stripes() const { return stripes_; }
    const HeadRule &rule() const { return rule_; }
    ThreadPool &pool() const { return pool_; }
    const HeadStats &part(int stripe, int row) const { return parts_[int64_t(stripe) * rows() + row]; }
    // Best real id of the row, its logit, and the sum over all real ids.
    const HeadStats &total(int row) const { return totals_[size_t(row)]; }

    // Calls look(i, ...) with the logits of visits[i], from any thread. `visits` are sorted by stripe.
    void visit(const std::vector<Visit> &visits, const Look &look);

  private:
    HeadStats join(const HeadStats &, const HeadStats &) const;

    const Kernels &kernels_;
    ThreadPool &pool_;
    Product product_;
    HeadRule rule_;
    const HeadStats *parts_;
    float *work_;
    int stripes_;
    std::vector<HeadStats> totals_;
};

// The pass over a model's head; lives in its scratch until the next pass of the model. `rule`: `valid` and `banned` are
// filled in; `mask_too`: the mask id is none that is banned.
HeadPass head_pass(Model &, const float *hidden, const std::vector<int> &rows, HeadRule rule, bool mask_too = false,
                   const Model *normed_by = nullptr);

} // namespace clover

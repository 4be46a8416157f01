#include "decode/drafter.h"

#include "model/head.h"

namespace clover {
namespace {

// A block that starts with `first`, masked behind it.
std::vector<int> masked_block(int first, int rows, int mask) {
    std::vector<int> block(size_t(rows), mask);
    block[0] = first;
    return block;
}

// The masks of `block` <- the most probable tokens of their own rows of hidden [n, H].
void fill(Model &m, const float *hidden, std::vector<int> &block, const Model *normed_by) {
    std::vector<int> masked;
    for (int row = 1; row < int(block.size()); row++)
        masked.push_back(row);
    const HeadPass head = head_pass(m, hidden, masked, HeadRule{}, false, normed_by);
    for (int row : masked)
        block[size_t(row)] = head.total(row - 1).argmax;
}

} // namespace

std::vector<int> OwnPreviews::draft(int first, int rows) {
    std::vector<int> block = masked_block(first, rows, m_.spec.mask_token_id);
    PreviewOptions options;
    options.coreset = coreset_;
    m_.preview(text_, block, options);
    fill(m_, m_.scratch.h.data(), block, nullptr);
    return block;
}

ContextDrafter::ContextDrafter(Model &target, State &text, const DraftModel &drafter)
    : target_(target), text_(text), m_(drafter.model), context_(drafter.state) {
    text_.kept_layers = m_.spec.drafts_for_layers;
}

ContextDrafter::~ContextDrafter() {
    text_.kept_layers.clear();
    text_.kept = {};
}

std::vector<int> ContextDrafter::draft(int first, int rows) {
    std::vector<int> block = masked_block(first, rows, m_.spec.mask_token_id);
    PreviewOptions options;
    options.words = &target_;
    m_.preview(context_, block, options);
    fill(target_, m_.scratch.h.data(), block, &m_);
    return block;
}

void ContextDrafter::follow(int rows) { m_.commit_context(context_, text_.kept.data(), rows); }

} // namespace clover

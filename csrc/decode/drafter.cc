#include "decode/drafter.h"

#include "model/head.h"

namespace clover {
namespace {

// A block that starts with `given`, masked behind it.
std::vector<int> masked_block(std::vector<int> given, int rows, int mask) {
    given.resize(size_t(rows), mask);
    return given;
}

// The masks of `block`, behind `given` tokens, <- the most probable ones of their own rows of hidden [n, H].
void fill(Model &m, const float *hidden, std::vector<int> &block, size_t given, const Model *normed_by) {
    std::vector<int> masked;
    for (int row = int(given); row < int(block.size()); row++)
        masked.push_back(row);
    const HeadPass head = head_pass(m, hidden, masked, HeadRule{}, false, normed_by);
    for (int row : masked)
        block[size_t(row)] = head.total(row - int(given)).argmax;
}

} // namespace

std::vector<int> OwnPreviews::draft(const std::vector<int> &given, int rows) {
    std::vector<int> block = masked_block(given, rows, m_.spec.mask_token_id);
    PreviewOptions options;
    options.coreset = coreset_;
    m_.preview(text_, block, options);
    fill(m_, m_.scratch.h.data(), block, given.size(), nullptr);
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

std::vector<int> ContextDrafter::draft(const std::vector<int> &given, int rows) {
    std::vector<int> block = masked_block(given, rows, m_.spec.mask_token_id);
    PreviewOptions options;
    options.words = &target_;
    m_.preview(context_, block, options);
    fill(target_, m_.scratch.h.data(), block, given.size(), &m_);
    return block;
}

void ContextDrafter::follow(int rows) { m_.commit_context(context_, text_.kept.data(), rows); }

} // namespace clover

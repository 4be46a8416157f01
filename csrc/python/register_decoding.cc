// The submodule `decoding`: the pieces that choose tokens, for tests. The runtime does not go through it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

std::vector<bool> accept(const std::vector<float> &probability, double threshold, int steps, int step,
                         int schedule_width) {
    const std::vector<char> accepted = ThresholdPolicy{threshold, steps, schedule_width}.accept(probability, step);
    return std::vector<bool>(accepted.begin(), accepted.end());
}

std::vector<bool> accept_least_entropy(const std::vector<double> &entropy, double entropy_bound, size_t least) {
    const std::vector<char> accepted = accept_by_entropy(entropy, entropy_bound, least);
    return std::vector<bool>(accepted.begin(), accepted.end());
}

Pick pick_from(const Floats &logits, int valid_vocab, int mask_token_id, const DecodeOptions &options,
               const Occurrences &seen, double u) {
    const SamplingOptions &sampling = options.sampling;
    std::vector<HeadRule::Penalty> penalties;
    HeadRule rule = head_rule(sampling, seen, penalties);
    rule.valid = valid_vocab;
    rule.banned = mask_token_id;
    const int n = int(logits.size());
    const Activations row{logits.data(), n, nullptr, 0, nullptr, nullptr, 1, n, block_of(n)};
    const Product product{{nullptr, Scheme::f32, n, n, 0}, row, nullptr, 1, nullptr, 0};
    ThreadPool pool(1);
    std::vector<HeadStats> parts(size_t(head_stripes(tiles_of(n))));
    std::vector<float> work(size_t(head_scratch_floats(1)));
    HeadPass head(kernels(), pool, product, rule, parts.data(), work.data());
    return pick(head, sampling, {u}, options.unmasking.confidence)[0];
}

std::pair<int, float> pick_token(const Floats &logits, int valid_vocab, int mask_token_id, const py::dict &options,
                                 const Occurrences &seen, double u) {
    const Pick p = pick_from(logits, valid_vocab, mask_token_id, options_from(options), seen, u);
    return {p.id, p.probability};
}

float confidence(const Floats &logits, int valid_vocab, int mask_token_id, const py::dict &options, double u) {
    return pick_from(logits, valid_vocab, mask_token_id, options_from(options), {}, u).confidence;
}

} // namespace

void register_decoding(py::module_ &m) {
    py::module_ sub = m.def_submodule("decoding", "How tokens are chosen.");
    sub.def("accept", &accept, "probability"_a, py::kw_only(), "threshold"_a, "steps"_a = 0, "step"_a = 0,
            "schedule_width"_a = 0, "Which masked positions a denoising step accepts.");
    sub.def("accept_by_entropy", &accept_least_entropy, "entropy"_a, py::kw_only(), "entropy_bound"_a, "least"_a = 1,
            "Which positions a denoising step accepts by their entropy.");
    sub.def("uniform", &uniform, "seed"_a, "position"_a, "step"_a, "The number in [0, 1) that decides a draw.");
    sub.def("pick", &pick_token, "logits"_a, py::kw_only(), "valid_vocab"_a, "mask_token_id"_a, "options"_a, "seen"_a,
            "u"_a, "(id, probability) from one row of logits; options as in Model.generate, seen: {id: occurrences}.");
    sub.def("confidence", &confidence, "logits"_a, py::kw_only(), "valid_vocab"_a, "mask_token_id"_a, "options"_a,
            "u"_a, "What ranks the position of such a row.");
}

} // namespace clover

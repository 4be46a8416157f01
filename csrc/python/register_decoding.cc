// The submodule `decoding`: the pieces that choose tokens, for tests. The runtime does not go through it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

std::vector<bool> accept(const std::vector<float> &probability, double threshold, int steps, int step) {
    const std::vector<char> accepted = ThresholdPolicy{threshold, steps}.accept(probability, step);
    return std::vector<bool>(accepted.begin(), accepted.end());
}

std::pair<int, float> pick_token(const Floats &logits, int valid_vocab, int mask_token_id, const py::dict &options,
                                 const Occurrences &seen, double u) {
    Spec spec;
    spec.vocab_size = int(logits.size());
    spec.valid_vocab = valid_vocab;
    spec.mask_token_id = mask_token_id;
    std::vector<float> row(logits.data(), logits.data() + logits.size());
    const Pick p = pick(row.data(), spec, options_from(options).sampling, seen, u);
    return {p.id, p.probability};
}

} // namespace

void register_decoding(py::module_ &m) {
    py::module_ sub = m.def_submodule("decoding", "How tokens are chosen.");
    sub.def("accept", &accept, "probability"_a, py::kw_only(), "threshold"_a, "steps"_a = 0, "step"_a = 0,
            "Which masked positions a denoising step accepts.");
    sub.def("uniform", &uniform, "seed"_a, "position"_a, "step"_a, "The number in [0, 1) that decides a draw.");
    sub.def("pick", &pick_token, "logits"_a, py::kw_only(), "valid_vocab"_a, "mask_token_id"_a, "options"_a, "seen"_a,
            "u"_a, "(id, probability) from one row of logits; options as in Model.generate, seen: {id: occurrences}.");
}

} // namespace clover

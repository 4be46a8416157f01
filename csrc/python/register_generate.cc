// Model.generate and what belongs to drafters.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <numeric>
#include <optional>

#include "model/head.h"
#include "python/bindings.h"
#include "python/constraint.h"
#include "python/engine.h"

namespace py = pybind11;

namespace clover {
namespace {

py::dict run(Engine &engine, Sequence &sequence, const py::object &ids, const py::dict &options,
             const py::object &callback, Sequence *draft_state, const py::object &rule) {
    check_owner(engine, sequence);
    Engine *drafter = draft_state ? draft_state->engine.get() : nullptr;
    if (drafter == &engine)
        throw ArgumentError("draft_state: is a state of the model itself");
    const std::vector<int> prompt = ids_from(ids);
    const DecodeOptions plain = options_from(options);
    std::optional<PythonConstraint> constraint;
    if (!rule.is_none())
        constraint.emplace(rule, engine.model.spec.vocab_size);
    Listener listener;
    if (!callback.is_none())
        listener = [&callback](const Event &event) {
            const py::gil_scoped_acquire held;
            const py::object answer = callback(to_python(event));
            return answer.is_none() || answer.cast<bool>();
        };
    DecodeResult result;
    {
        const Lease lease(engine, drafter);
        std::optional<DraftModel> drafts;
        if (drafter)
            drafts.emplace(DraftModel{drafter->model, draft_state->state});
        result = generate(engine.model, sequence.state, prompt, plain, listener, check_signals,
                          drafts ? &*drafts : nullptr, constraint ? &*constraint : nullptr);
    }
    return to_python(result);
}

void check_drafter(Engine &engine, Engine &drafter) { drafter.model.check_drafts_for(engine.model); }

py::array_t<float> draft(Engine &engine, Sequence &context, const py::object &ids) {
    Engine &drafter = *context.engine;
    const std::vector<int> block = ids_from(ids);
    std::vector<int> rows(block.size());
    std::iota(rows.begin(), rows.end(), 0);
    drafter.model.check_drafts_for(engine.model);
    py::array_t<float> out({py::ssize_t(rows.size()), py::ssize_t(engine.model.spec.vocab_size)});
    float *data = out.mutable_data();
    PreviewOptions options;
    options.words = &engine.model;
    const Lease lease(engine, &drafter);
    drafter.model.preview(context.state, block, options);
    head_logits(engine.model, drafter.model.scratch.h.data(), rows, data, &drafter.model);
    return out;
}

constexpr const char *kGenerateDoc =
    "Commits ids and generates. options: mode (diffusion, ar or speculative; left out: the model's own), "
    "max_new_tokens, "
    "block_length, threshold, steps, fixed_schedule, edit_threshold, max_post_steps, sub_block, cache, eps, "
    "confidence, confidence_temperature, stop_penalty, skip_rows, refresh, fused_commit, t_min, t_max, "
    "strategy, factor, credit, entropy_bound, stability_threshold, confidence_threshold, temperature, top_k, top_p,\n"
    "seed, stop_ids, presence_penalty, frequency_penalty, repetition_penalty, coreset, coreset_share, logprobs (-1: "
    "none), "
    "commit_last, mark. callback(event) "
    "gets\n"
    "prefill, step and block events; False cancels. draft_state: of a drafter, at the same position as the state; it\n"
    "follows the text, and mode is speculative. constraint: an object with force(most, room) -> ids, allowed(), bits "
    "and\n"
    "advance(id, room) -> bool, which the text must follow: clover_edge.constrained.GrammarRule. Returns ids, "
    "finish_reason, stop_id, logprobs and counters.";

constexpr const char *kCheckDrafterDoc = "Raises ArgumentError naming the field where `drafter` cannot draft for this "
                                         "model, UnsupportedModelError where it\n"
                                         "drafts for none.";

constexpr const char *kDraftDoc = "One pass of a drafter over a block behind its state, which stays as it is: float32 "
                                  "logits [n, vocab_size], through\n"
                                  "this model's embedding and head. Raises ArgumentError, UnsupportedModelError.";

} // namespace

void register_generate(py::class_<Engine, std::shared_ptr<Engine>> &model) {
    model
        .def("generate", &run, py::arg("state"), py::arg("ids"), py::arg("options") = py::dict(),
             py::arg("callback") = py::none(), py::arg("draft_state") = py::none(), py::arg("constraint") = py::none(),
             kGenerateDoc)
        .def("check_drafter", &check_drafter, py::arg("drafter"), kCheckDrafterDoc)
        .def("draft", &draft, py::arg("draft_state"), py::arg("ids"), kDraftDoc);
}

} // namespace clover

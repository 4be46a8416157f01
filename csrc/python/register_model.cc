// The class Model. All compute runs without the interpreter's lock.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "model/head.h"
#include "model/self_conditioning.h"
#include "python/bindings.h"
#include "python/engine.h"
#include "python/executor.h"

namespace py = pybind11;

namespace clover {

void check_signals() {
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0)
        throw py::error_already_set();
}

std::vector<int> ids_from(const py::object &value) {
    const py::array any = py::array::ensure(value);
    if (!any)
        throw py::error_already_set();
    if (any.size() == 0)
        return {};
    if (any.ndim() != 1 || (any.dtype().kind() != 'i' && any.dtype().kind() != 'u'))
        throw ArgumentError("token ids must be a list of integers");
    const auto wide = py::array_t<int64_t, py::array::c_style | py::array::forcecast>(any);
    std::vector<int> ids;
    for (py::ssize_t i = 0; i < wide.size(); i++) {
        const int64_t id = wide.data()[i];
        if (id != int(id))
            throw ArgumentError("token " + std::to_string(i) + " (id " + std::to_string(id) + ") is no token id");
        ids.push_back(int(id));
    }
    return ids;
}

namespace {

using Floats = py::array_t<float>;

KvFormat kv_from(const std::string &name) {
    const char *const names[] = {"f32", "f16", "int8"};
    for (int i = 0; i < 3; i++)
        if (name == names[i])
            return static_cast<KvFormat>(i);
    throw ArgumentError("kv \"" + name + "\" is none of \"f32\", \"f16\", \"int8\"");
}

std::shared_ptr<Engine> make_engine(const py::dict &spec, const std::vector<std::string> &files,
                                    const py::list &tensors, int threads, const std::optional<std::string> &isa,
                                    const std::string &delta_form, bool mmap, const std::string &kv,
                                    const std::optional<bool> &read_ahead, const py::object &external) {
    if (threads < 0 || threads > 1024)
        throw ArgumentError("threads " + std::to_string(threads) + " is outside [0, 1024]");
    if (delta_form != "sequential" && delta_form != "closed")
        throw ArgumentError("delta_form \"" + delta_form + "\" is neither \"sequential\" nor \"closed\"");
    const Spec plain_spec = spec_from(spec);
    const std::vector<TensorRow> table = table_from(tensors);
    ModelOptions options{threads, isa.value_or(""), delta_form == "closed", kv_from(kv), read_ahead, mmap, nullptr};
    if (!external.is_none()) {
        if (!table.empty() || !files.empty())
            throw ArgumentError("external: takes no files and no tensors");
        options.executor = std::make_shared<PythonExecutor>(external, plain_spec);
    }
    const py::gil_scoped_release released;
    return std::make_shared<Engine>(plain_spec, files, table, options);
}

Sequence new_state(const std::shared_ptr<Engine> &engine, int64_t max_tokens) {
    const Lease lease(*engine);
    return {engine, engine->model.new_state(max_tokens)};
}

py::object commit(Engine &engine, Sequence &sequence, const py::object &ids, const std::string &logits, bool rollback) {
    check_owner(engine, sequence);
    const std::vector<int> tokens = ids_from(ids);
    const Logits want = logits_from(logits);
    const py::ssize_t rows = want == Logits::all ? py::ssize_t(tokens.size()) : want == Logits::last;
    Floats out({rows, py::ssize_t(engine.model.spec.vocab_size)});
    float *data = out.mutable_data();
    {
        const Lease lease(engine);
        engine.model.commit(sequence.state, tokens, want, rollback, data, check_signals);
    }
    return want == Logits::none ? py::object(py::none()) : py::object(out);
}

using Array = py::array_t<float, py::array::c_style | py::array::forcecast>;

// Data of mean embeddings for `rows` rows, or null.
const float *soft_rows(const Model &model, const std::optional<Array> &soft, size_t rows) {
    if (!soft)
        return nullptr;
    if (!model.spec.self_conditioning_intermediate)
        throw UnsupportedModel("soft: the model has no self-conditioning");
    if (soft->ndim() != 2 || size_t(soft->shape(0)) != rows || soft->shape(1) != model.spec.hidden_size)
        throw ArgumentError("soft: expected a row of " + std::to_string(model.spec.hidden_size) +
                            " numbers for each of " + std::to_string(rows) + " ids");
    return soft->data();
}

// Where the rows of a block that are asked for stand in a preview's output.
std::vector<int> output_rows(const std::optional<std::vector<int>> &rows, const std::vector<int> *computed, int open,
                             int block) {
    std::vector<int> which;
    for (int row = 0; !rows && row < block; row++)
        if (!computed || std::binary_search(computed->begin(), computed->end(), open + row))
            which.push_back(row);
    for (int &row : rows ? which = *rows : which) {
        if (row < 0 || row >= block)
            throw ArgumentError("row " + std::to_string(row) + " is outside the block");
        row += open;
        if (!computed)
            continue;
        const auto at = std::lower_bound(computed->begin(), computed->end(), row);
        if (at == computed->end() || *at != row)
            throw ArgumentError("row " + std::to_string(row - open) + " is not among those to compute");
        row = int(at - computed->begin());
    }
    if (which.size() > size_t(block))
        throw ArgumentError("more rows asked for than the block has");
    return which;
}

Floats preview(Engine &engine, Sequence &sequence, const py::object &ids, const std::optional<std::vector<int>> &rows,
               std::optional<int> width, std::optional<int> coreset, Block *block,
               const std::optional<std::vector<int>> &compute, const py::object &commit,
               const std::optional<Array> &soft, double coreset_share) {
    check_owner(engine, sequence);
    const std::vector<int> tokens = ids_from(ids);
    const std::vector<int> first = commit.is_none() ? std::vector<int>() : ids_from(commit);
    if (width && *width < 1)
        throw ArgumentError("width " + std::to_string(*width) + " is below 1");
    Model &model = engine.model;
    PreviewOptions options{coreset.value_or(model.spec.coreset_size), width.value_or(0), block};
    options.coreset_share = coreset_share;
    if (compute)
        options.rows = &*compute;
    const int open = commit.is_none() ? int(sequence.state.open.size()) : 0;
    std::vector<int> which = output_rows(rows, options.rows, open, int(tokens.size()));
    Floats out({py::ssize_t(which.size()), py::ssize_t(model.spec.vocab_size)});
    float *data = out.mutable_data();
    options.soft = soft_rows(model, soft, tokens.size());
    const Lease lease(engine);
    int front = 0;
    if (commit.is_none())
        model.preview(sequence.state, tokens, options);
    else
        front = model.commit_and_preview(sequence.state, first, tokens, options);
    if (!which.empty())
        head_logits(model, model.scratch.h.data() + int64_t(front) * model.spec.hidden_size, which, data);
    return out;
}

// What a preview leaves for the next one: (soft [n, H], entropy [n]).
std::pair<Floats, std::vector<double>> soft_embeddings(Engine &engine, Sequence &sequence, const py::object &ids,
                                                       double temperature, const std::optional<Array> &soft) {
    check_owner(engine, sequence);
    Model &model = engine.model;
    if (!model.spec.self_conditioning_intermediate)
        throw UnsupportedModel("the model has no self-conditioning");
    const std::vector<int> canvas = ids_from(ids);
    PreviewOptions options;
    options.soft = soft_rows(model, soft, canvas.size());
    std::vector<int> rows(canvas.size());
    std::iota(rows.begin(), rows.end(), 0);
    Floats out({py::ssize_t(rows.size()), py::ssize_t(model.spec.hidden_size)});
    float *data = out.mutable_data();
    const Lease lease(engine);
    model.preview(sequence.state, canvas, options);
    HeadRule rule{};
    rule.inverse_temperature = float(1 / temperature);
    HeadPass head = head_pass(model, model.scratch.h.data(), rows, rule);
    std::vector<double> entropy = soften(model, head, data);
    return {std::move(out), std::move(entropy)};
}

double time_pass(Engine &engine, Sequence &sequence, const py::object &commit, const py::object &block, int head,
                 std::optional<int> coreset, Block *kept, double coreset_share,
                 const std::optional<std::vector<int>> &compute) {
    check_owner(engine, sequence);
    const std::vector<int> first = ids_from(commit), ids = ids_from(block);
    std::vector<int> rows;
    for (int row = 0; row < head; row++)
        rows.push_back(row);
    if (first.size() + (compute ? compute->size() : ids.size()) < rows.size())
        throw ArgumentError("head " + std::to_string(head) + " is more rows than the pass has");
    Model &model = engine.model;
    PreviewOptions options{coreset.value_or(model.spec.coreset_size), 0, kept};
    options.coreset_share = coreset_share;
    if (compute)
        options.rows = &*compute;
    const Lease lease(engine);
    const auto begin = std::chrono::steady_clock::now();
    if (ids.empty())
        model.commit(sequence.state, first, Logits::none, false, nullptr, check_signals);
    else if (first.empty())
        model.preview(sequence.state, ids, options);
    else
        model.commit_and_preview(sequence.state, first, ids, options);
    if (head > 0)
        head_pass(model, model.scratch.h.data(), rows, HeadRule{});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

py::dict counters(Engine &engine) {
    Counters now;
    {
        const Lease lease(engine); // a pass counts while it runs
        now = engine.model.counters;
    }
    py::dict out;
    out["rows"] = now.rows;
    out["experts_touched"] = now.experts_touched;
    out["bytes_read"] = now.bytes_read;
    return out;
}

constexpr const char *kModelDoc =
    "A model mapped from packed files. One call at a time uses it: calls from other threads wait, a call from within\n"
    "a callback raises ArgumentError.\n\n"
    "spec: flat dict of the format's fields. files: paths. tensors: rows of name, scheme, shape, group, file, offset,\n"
    "bytes, stride. threads: 0 for as many as the machine lends. isa: a name from available_isas(), or None for the\n"
    "best. delta_form: \"sequential\" or \"closed\", how commits of two rows and more compute DeltaNet.\n"
    "mmap: False copies the weights into huge pages. kv: \"f32\", \"f16\" or \"int8\", how keys and values are kept.\n"
    "read_ahead: ask the disk for experts whenever they are chosen, not just the first time (None: where\n"
    "memory cannot hold the weights). external: an object that computes the passes instead, without files and\n"
    "tensors: forward(mode, ids, positions, sees_to, history_width, caches) -> (hidden [n, H], new) and\n"
    "head(hidden [m, H]) -> logits [m, vocab_size], see docs/onnx.md.\n"
    "Raises ModelFormatError, UnsupportedModelError, UnsupportedDeviceError, ArgumentError.";

constexpr const char *kCommitDoc =
    "Appends ids to the state under the spec's mask. Returns float32 logits [1, vocab_size] (\"last\"), [n, "
    "vocab_size]\n"
    "(\"all\") or None (\"none\"); padding and mask ids are not removed. rollback: keep what truncate() needs to "
    "return to\n"
    "any of these rows (at most 128). Raises ArgumentError, ContextLengthError, OutOfMemoryError.";

constexpr const char *kPreviewDoc =
    "One denoising pass over a block behind the state, which stays as it is. Returns float32 logits [len(rows),\n"
    "vocab_size] of the chosen rows (None: all), padding and mask ids included. width: rows that the history's logit\n"
    "counts (None: the block's own). coreset: experts that the block may use (None: the spec's number, 0: all).\n"
    "coreset_share: of the experts that the rows computed would choose, how many they use (0: all). soft:\n"
    "[n, H], what soft_embeddings() made of the preview before (None: there was none).\n"
    "Raises UnsupportedModelError where the spec says that the model is autoregressive.";

constexpr const char *kSoftDoc =
    "What self-conditioning keeps of a preview: (soft [n, H], the mean embedding of every row under its probabilities\n"
    "at this temperature; their entropies [n] in nats). Raises ArgumentError, UnsupportedModelError.";

constexpr const char *kTimePassDoc = "Seconds of a pass that commits ids [0 or more], previews a block [0 or more] "
                                     "behind them and reduces `head` of its\n"
                                     "rows over the vocabulary, as a step of generate() does. kept, compute: as block "
                                     "and compute of preview().";

} // namespace

void register_model(py::module_ &m) {
    register_state(m);
    py::class_<Block>(m, "Block", "What the previews of one block keep from step to step; a new one for each block.")
        .def(py::init<>());
    py::class_<Engine, std::shared_ptr<Engine>> model(m, "Model", kModelDoc);
    register_observer(model);
    register_generate(model);
    register_load_state(model);
    model
        .def(py::init(&make_engine), py::arg("spec"), py::arg("files"), py::arg("tensors"), py::kw_only(),
             py::arg("threads") = 0, py::arg("isa") = py::none(), py::arg("delta_form") = "sequential",
             py::arg("mmap") = true, py::arg("kv") = "f32", py::arg("read_ahead") = py::none(),
             py::arg("external") = py::none())
        .def_property_readonly(
            "isa", [](const Engine &e) { return e.model.kernels.isa; }, "Kernels in use.")
        .def_property_readonly(
            "read_ahead", [](const Engine &e) { return e.model.read_ahead; }, "Experts are read from disk as chosen.")
        .def_property_readonly(
            "threads", [](const Engine &e) { return e.model.pool.size(); }, "Threads in use.")
        .def_property_readonly(
            "chunk_rows", [](const Engine &) { return Model::kChunkRows; }, "Rows of one pass of a commit, at most.")
        .def_property_readonly(
            "weight_bytes", [](const Engine &e) { return e.model.weights.bytes; }, "Bytes of all tensors.")
        .def_property_readonly(
            "dense_bytes", [](const Engine &e) { return e.model.weights.dense_bytes; },
            "Bytes of the tensors that every pass reads; experts may stay on disk.")
        .def(
            "needs",
            [](const Engine &e, int64_t max_tokens) {
                const Model::Needs needs = e.model.needs(max_tokens);
                return py::make_tuple(needs.state, needs.working);
            },
            py::arg("max_tokens"), "Bytes of a state for so many tokens, and of the working memory of its passes.")
        .def_property_readonly("counters", &counters,
                               "Totals since loading: rows of all passes, distinct experts summed over layers and\n"
                               "passes (experts_touched), weight bytes read (bytes_read).")
        .def("new_state", &new_state, py::arg("max_tokens"),
             "An empty state for at most max_tokens tokens. Raises ContextLengthError, OutOfMemoryError.")
        .def("commit", &commit, py::arg("state"), py::arg("ids"), py::kw_only(), py::arg("logits") = "last",
             py::arg("rollback") = false, kCommitDoc)
        .def("preview", &preview, py::arg("state"), py::arg("ids"), py::arg("rows") = py::none(),
             py::arg("width") = py::none(), py::kw_only(), py::arg("coreset") = py::none(),
             py::arg("block") = py::none(), py::arg("compute") = py::none(), py::arg("commit") = py::none(),
             py::arg("soft") = py::none(), py::arg("coreset_share") = 0.0, kPreviewDoc)
        .def("soft_embeddings", &soft_embeddings, py::arg("state"), py::arg("ids"), py::kw_only(),
             py::arg("temperature") = 1.0, py::arg("soft") = py::none(), kSoftDoc)
        .def("time_pass", &time_pass, py::arg("state"), py::arg("commit"), py::arg("block"), py::kw_only(),
             py::arg("head") = 0, py::arg("coreset") = py::none(), py::arg("kept") = py::none(),
             py::arg("coreset_share") = 0.0, py::arg("compute") = py::none(), kTimePassDoc);
}

} // namespace clover

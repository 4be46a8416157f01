// The submodule `timing`, for benchmarks: the machine's ceilings, and kernels timed as the runtime calls them:
// activations rounded and products shared out over a pool, on buffers that stay, without the interpreter.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <chrono>
#include <optional>

#include "kernels/ceilings.h"
#include "model/forward.h"
#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Isa = std::optional<std::string>;

const Kernels &table(const Isa &isa) { return kernels(isa ? isa->c_str() : nullptr); }

template <class Run> double seconds(const Run &run) {
    const auto started = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

Ceilings ceilings_of(const Isa &isa) {
    const char *name = table(isa).isa;
    const Ceilings found = ceilings(name);
    if (!found.dot || !found.fma || !found.read)
        throw ArgumentError("isa: no ceilings are measured for " + std::string(name));
    return found;
}

constexpr int64_t kRounds = 20000;      // of arithmetic in an item: tens of microseconds
constexpr int64_t kItems = 100;         // per thread: some milliseconds
constexpr int64_t kReadPiece = 1 << 20; // bytes of an item
constexpr int64_t kLargest = 1 << 24;   // rows and columns of a timed product

double arithmetic(int64_t (*loop)(int64_t), int threads) {
    const py::gil_scoped_release released;
    ThreadPool pool(threads);
    std::atomic<int64_t> done{0};
    const auto all = [&] { pool.run(kItems * pool.size(), [&](int64_t, int) { done += loop(kRounds); }); };
    all(); // clocks settle, workers wake
    done = 0;
    const double taken = seconds(all);
    return double(done.load()) / taken;
}

double read_rate(const Isa &isa, int threads, const Bytes &data) {
    const Ceilings c = ceilings_of(isa);
    const int64_t pieces = int64_t(data.size()) / kReadPiece;
    if (pieces < 1)
        throw ArgumentError("data: at least " + std::to_string(kReadPiece) + " bytes");
    const uint8_t *from = data.data();
    const py::gil_scoped_release released;
    ThreadPool pool(threads);
    std::atomic<uint64_t> seen{0};
    const double taken =
        seconds([&] { pool.run(pieces, [&](int64_t i, int) { seen ^= c.read(from + i * kReadPiece, kReadPiece); }); });
    return double(pieces * kReadPiece) / taken;
}

// x [rows, k] times copies of a stored matrix, one after the other: several copies keep it out of caches.
class TimedProduct {
  public:
    TimedProduct(const Isa &isa, int threads, std::vector<Bytes> copies, const std::string &scheme, int n, int k,
                 int group, Floats x, std::vector<int8_t> codebook)
        : kernels_(table(isa)), pool_(threads), copies_(std::move(copies)), codebook_(std::move(codebook)),
          x_(std::move(x)) {
        w_ = {nullptr, scheme_from(scheme), n, k, group, codebook_.empty() ? nullptr : codebook_.data()};
        check();
        rows_ = int(x_.shape(0));
        y_.resize(rows_ * int64_t(n));
        input_.reserve(rows_, k, form_of(w_));
        input_.shape(k);
        std::copy_n(x_.data(), x_.size(), input_.row(0));
        round();
    }

    // Seconds of one product; with `rounding`, from float rows.
    double run(bool rounding) {
        w_.data = copies_[next_++ % copies_.size()].data();
        const py::gil_scoped_release released;
        return seconds([&] {
            if (rounding)
                round();
            multiply(kernels_, pool_, {{w_, input_.activations(w_, 0, rows_), nullptr, rows_, y_.data(), w_.n}});
        });
    }

    Floats result() const {
        Floats out({py::ssize_t(rows_), py::ssize_t(w_.n)});
        std::copy_n(y_.data(), out.size(), out.mutable_data());
        return out;
    }

  private:
    static Scheme scheme_from(const std::string &name) {
        if (const std::optional<Scheme> scheme = scheme_named(name))
            return *scheme;
        throw ArgumentError("scheme: unknown: " + name);
    }

    void check() const {
        const bool floats = w_.scheme == Scheme::f32 || w_.scheme == Scheme::bf16;
        if (w_.n < 1 || w_.k < 1 || w_.n > kLargest || w_.k > kLargest)
            throw ArgumentError("n, k: out of range");
        if (floats ? w_.group != 0 : (w_.group != 32 && w_.group != 64 && w_.group != 128) || w_.k % w_.group)
            throw ArgumentError("group: does not fit scheme and k");
        if ((w_.scheme == Scheme::codebook4) != (codebook_.size() == 16))
            throw ArgumentError("codebook: 16 values, for codebook4 only");
        if (x_.ndim() != 2 || x_.shape(0) < 1 || x_.shape(0) > 65536 || x_.shape(1) != w_.k)
            throw ArgumentError("x: expected [rows, k]");
        if (copies_.empty())
            throw ArgumentError("copies: none");
        for (const Bytes &copy : copies_)
            if (int64_t(copy.size()) != matrix_bytes(w_))
                throw ArgumentError("copies: " + std::to_string(copy.size()) + " bytes, expected " +
                                    std::to_string(matrix_bytes(w_)));
    }

    void round() {
        const Forms forms = form_of(w_);
        if (forms)
            pool_.run(rows_, [&](int64_t r, int) { input_.quantize(kernels_, forms, r); });
    }

    const Kernels &kernels_;
    ThreadPool pool_;
    std::vector<Bytes> copies_;
    std::vector<int8_t> codebook_;
    Floats x_;
    Matrix w_;
    int rows_ = 0;
    size_t next_ = 0;
    Input input_;
    Buffer<float> y_;
};

// Halves of single layers of a model, on rows given from outside.
class TimedLayers {
  public:
    TimedLayers(const Spec &spec, const std::vector<std::string> &files, const std::vector<TensorRow> &rows,
                const ModelOptions &options, int64_t max_tokens)
        : model_(spec, files, rows, options), state_(model_.new_state(max_tokens)) {}

    void commit(const std::vector<int> &ids) {
        model_.commit(state_, ids, Logits::none, false, nullptr, [] {});
    }

    // (seconds, distinct experts)
    py::tuple feed_forward(int layer, const Floats &x) {
        const int64_t before = model_.counters.experts_touched;
        const double taken = run(layer, x, true, [layer](Pass &pass) { clover::feed_forward(pass, layer); });
        return py::make_tuple(taken, model_.counters.experts_touched - before);
    }

    double mixer(int layer, const Floats &x, bool preview) {
        if (preview)
            model_.require_preview();
        return run(layer, x, preview, [layer](Pass &pass) {
            clover::mixer_inputs(pass, layer);
            clover::mixer(pass, layer);
        });
    }

  private:
    template <class Half> double run(int layer, const Floats &x, bool preview, const Half &half) {
        if (layer < 0 || layer >= int(model_.spec.layers.size()))
            throw ArgumentError("layer: out of range");
        if (x.ndim() != 2 || x.shape(1) != model_.spec.hidden_size || x.shape(0) < 1 || x.shape(0) > Model::kMaxBlock)
            throw ArgumentError("x: expected [rows, hidden_size]");
        const int rows = int(x.shape(0));
        if (model_.spec.full_mask() && rows > Model::kChunkRows)
            throw ArgumentError("x: more rows than one chunk of a pass under a full mask has");
        if (state_.position + rows > state_.capacity)
            throw ArgumentError("x: more rows than the state has room for");
        const std::vector<int> ids(size_t(rows), 0);
        const float *from = x.data();
        const py::gil_scoped_release released;
        state_.reserve(state_.position + rows);
        model_.scratch.reserve(rows);
        Pass pass(model_, state_, ids.data(), preview ? 0 : rows, preview ? ids : std::vector<int>(), {},
                  grid_of(model_.spec, state_.position));
        set_input(pass, layer, from);
        return seconds([&] { half(pass); });
    }

    // Codes for either half; heads stay where they are.
    void set_input(Pass &pass, int layer, const float *x) {
        const int64_t width = model_.spec.hidden_size;
        const LayerWeights &w = pass.layer(layer);
        const Forms forms = mixer_forms(w) | dense_forms(w) | expert_forms(w);
        for (int64_t r = 0; r < pass.rows; r++) {
            std::copy_n(x + r * width, width, model_.scratch.x.row(r));
            model_.scratch.x.quantize(model_.kernels, forms, r);
        }
        model_.scratch.rope.clear();
    }

    Model model_;
    State state_;
};

void register_ceilings(py::module_ &m) {
    m.def(
        "ceiling_dot", [](const Isa &isa, int threads) { return arithmetic(ceilings_of(isa).dot, threads); }, "isa"_a,
        "threads"_a, "Int8 operations a second (a multiply-add is two), on registers.");
    m.def(
        "ceiling_fma", [](const Isa &isa, int threads) { return arithmetic(ceilings_of(isa).fma, threads); }, "isa"_a,
        "threads"_a, "Float32 operations a second (a multiply-add is two), on registers.");
    m.def("ceiling_read", &read_rate, "isa"_a, "threads"_a, "data"_a,
          "Bytes of `data` read a second, in whole pieces of 1 MiB.");
}

} // namespace

void register_timing(py::module_ &m) {
    py::module_ sub = m.def_submodule("timing", "Ceilings of this machine and timers of kernels, for benchmarks.");
    register_ceilings(sub);
    register_timing_mixers(sub);
    py::class_<TimedProduct>(sub, "Product", "x [rows, k] times each of `copies` of a stored matrix [n, k] in turn.")
        .def(py::init<const Isa &, int, std::vector<Bytes>, const std::string &, int, int, int, Floats,
                      std::vector<int8_t>>(),
             "isa"_a, "threads"_a, "copies"_a, "scheme"_a, "n"_a, "k"_a, "group"_a, "x"_a,
             "codebook"_a = std::vector<int8_t>())
        .def("run", &TimedProduct::run, "rounding"_a = true,
             "Seconds of the next product; `rounding` counts the rounding of x to int8.")
        .def("result", &TimedProduct::result, "float32 [rows, n] of the last product.");
    py::class_<TimedLayers>(sub, "Layers", "Single layers of a model: see Model for the arguments.")
        .def(py::init([](const py::dict &spec, const std::vector<std::string> &files, const py::list &tensors,
                         int threads, const Isa &isa, int64_t max_tokens) {
                 ModelOptions options;
                 options.threads = threads;
                 options.isa = isa.value_or("");
                 return std::make_unique<TimedLayers>(spec_from(spec), files, table_from(tensors), options, max_tokens);
             }),
             "spec"_a, "files"_a, "tensors"_a, "threads"_a = 0, "isa"_a = py::none(), "max_tokens"_a = 1024)
        .def("commit", &TimedLayers::commit, "ids"_a, "Appends ids to the state that mixers read.")
        .def("mixer", &TimedLayers::mixer, "layer"_a, "x"_a, "preview"_a,
             "Seconds of one mixer half over normalised rows x [n, H]; without `preview` it writes the state.")
        .def("feed_forward", &TimedLayers::feed_forward, "layer"_a, "x"_a,
             "(seconds, distinct experts) of one feed-forward half over normalised rows x [n, H].");
}

} // namespace clover

// Timers of the kernels that mix rows, on buffers of their own: one thread, all heads of a layer.
#include <pybind11/stl.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "base/error.h"
#include "model/buffer.h"
#include "python/bindings.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace clover {
namespace {

using Isa = std::optional<std::string>;

const Kernels &table(const Isa &isa) { return kernels(isa ? isa->c_str() : nullptr); }

void in_range(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        throw ArgumentError(std::string(name) + ": " + std::to_string(value) + " is outside [" + std::to_string(low) +
                            ", " + std::to_string(high) + "]");
}

class TimedCall {
  public:
    explicit TimedCall(std::function<void()> call) : call_(std::move(call)) {}

    double run() const {
        const py::gil_scoped_release released;
        const auto started = std::chrono::steady_clock::now();
        call_();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    }

  private:
    std::function<void()> call_;
};

// n values from [low, high)
std::shared_ptr<Buffer<float>> draw(int64_t n, float low, float high) {
    std::minstd_rand random(unsigned(n) + 1);
    std::uniform_real_distribution<float> value(low, high);
    auto out = std::make_shared<Buffer<float>>(n);
    for (int64_t i = 0; i < n; i++)
        out->data()[i] = value(random);
    return out;
}

// q, k, v, o [rows, heads * width]; g, beta [rows, heads]; S [heads, width, width]
TimedCall delta(const Isa &isa, const std::string &kind, int rows, int heads, int width) {
    in_range("rows", rows, 1, 1024);
    in_range("heads", heads, 1, 1024);
    in_range("width", width, 16, 1024);
    if (kind != "commit" && kind != "closed" && kind != "preview")
        throw ArgumentError("kind: \"" + kind + "\" is none of commit, closed, preview");
    const int64_t n = int64_t(heads) * width;
    const float unit = 1 / std::sqrt(float(width)); // rows of q and k have about unit length
    auto q = draw(rows * n, -unit, unit), k = draw(rows * n, -unit, unit), v = draw(rows * n, -1, 1);
    auto g = draw(int64_t(rows) * heads, -0.5f, 0), beta = draw(int64_t(rows) * heads, 0, 1);
    auto state = draw(n * width, -1, 1), o = draw(rows * n, 0, 1);
    auto scratch = draw(delta_scratch_floats(rows, width, width), 0, 1);
    const Kernels &kernel = table(isa);
    return TimedCall([=, &kernel] {
        for (int h = 0; h < heads; h++) {
            const int64_t at = int64_t(h) * width;
            const DeltaHead d{width,
                              width,
                              rows,
                              q->data() + at,
                              k->data() + at,
                              v->data() + at,
                              n,
                              n,
                              g->data() + h,
                              beta->data() + h,
                              heads,
                              state->data() + at * width,
                              o->data() + at,
                              n,
                              scratch->data()};
            if (kind == "preview")
                kernel.delta_preview({d, d.rows, 4, 1, unit, false});
            else
                (kind == "closed" ? kernel.delta_closed : kernel.delta_commit)(d);
        }
    });
}

TimedCall conv(const Isa &isa, int rows, int channels, int taps, bool preview) {
    in_range("rows", rows, 1, 1024);
    in_range("channels", channels, 16, 1 << 20);
    in_range("taps", taps, 2, 16);
    auto ring = draw(int64_t(taps - 1) * channels, -1, 1), block = draw(int64_t(rows) * channels, -1, 1);
    auto w = draw(int64_t(taps) * channels, -1, 1), right = draw(int64_t(taps - 1) * channels, -1, 1);
    auto out = draw(int64_t(rows) * channels, 0, 1);
    const Kernels &kernel = table(isa);
    return TimedCall([=, &kernel] {
        kernel.conv(ring->data(), block->data(), channels, w->data(), preview ? right->data() : nullptr, rows, channels,
                    taps, 0, channels, out->data(), channels);
    });
}

KvFormat format_from(const std::string &name) {
    const char *const names[] = {"f32", "f16", "int8"};
    for (int i = 0; i < 3; i++)
        if (name == names[i])
            return KvFormat(i);
    throw ArgumentError("kv: \"" + name + "\" is none of f32, f16, int8");
}

// A block that sees `past` rows and itself; keys and values of a row side by side as in a state.
TimedCall attention(const Isa &isa, int rows, int heads, int kv_heads, int head_dim, int past, const std::string &kv) {
    in_range("rows", rows, 1, 1024);
    in_range("kv_heads", kv_heads, 1, 64);
    in_range("heads", heads, kv_heads, 1024);
    in_range("head_dim", head_dim, 16, 1024);
    in_range("past", past, 0, 1 << 20);
    if (heads % kv_heads)
        throw ArgumentError("heads: no multiple of kv_heads");
    const KvFormat format = format_from(kv);
    const int group = heads / kv_heads;
    const int64_t part = kv_bytes(format, head_dim), stride = part * kv_heads, width = int64_t(heads) * head_dim;
    auto keys = std::make_shared<Buffer<uint8_t>>((past + rows) * stride);
    auto values = std::make_shared<Buffer<uint8_t>>((past + rows) * stride);
    auto row = draw(head_dim, -1, 1), q = draw(rows * width, -1, 1), o = draw(rows * width, 0, 1);
    for (int64_t i = 0; i < int64_t(past + rows) * kv_heads; i++) {
        row->data()[i % head_dim] = -row->data()[i % head_dim];
        store_kv(format, row->data(), head_dim, keys->data() + i * part);
        store_kv(format, row->data(), head_dim, values->data() + i * part);
    }
    auto scratch = draw(attention_scratch_floats(rows, group, head_dim), 0, 1);
    const Kernels &kernel = table(isa);
    return TimedCall([=, &kernel] {
        for (int h = 0; h < kv_heads; h++) {
            AttentionHeads call{};
            call.rows = call.seen = rows;
            call.heads = group;
            call.head_dim = head_dim;
            call.q = q->data() + int64_t(h) * group * head_dim;
            call.o = o->data() + int64_t(h) * group * head_dim;
            call.ldq = call.ldo = width;
            call.format = format;
            call.k = keys->data() + h * part;
            call.v = values->data() + h * part;
            call.ldkv = stride;
            call.past = past;
            call.scale = 1 / std::sqrt(float(head_dim));
            call.scratch = scratch->data();
            kernel.attention(call);
        }
    });
}

} // namespace

void register_timing_mixers(py::module_ &m) {
    py::class_<TimedCall>(m, "Call", "Something to be timed.").def("run", &TimedCall::run, "Seconds of one call.");
    m.def("delta", &delta, "isa"_a, "kind"_a, "rows"_a, "heads"_a = 32, "width"_a = 128,
          "All heads of a DeltaNet layer; kind: commit (token by token), closed, preview.");
    m.def("conv", &conv, "isa"_a, "rows"_a, "channels"_a = 8192, "taps"_a = 4, "preview"_a = false,
          "The convolution of a DeltaNet layer.");
    m.def("attention", &attention, "isa"_a, "rows"_a, "heads"_a = 16, "kv_heads"_a = 2, "head_dim"_a = 256,
          "past"_a = 0, "kv"_a = "f32", "All heads of an attention layer over `past` rows and the block's own.");
}

} // namespace clover

// Prints a hash of the stored bytes and the loss for every scheme and method, of weights that are the same everywhere:
// test_machines.py compares two machines' output.
#include <cstdio>
#include <vector>

#include "quant/quantise.h"

using namespace clover;
using namespace clover::quant;

namespace {

constexpr int64_t kRows = 37, kColumns = 256;
constexpr int8_t kCodebook[16] = {-127, -98, -75, -59, -44, -31, -19, -8, 2, 12, 22, 34, 47, 62, 80, 104};

float draw(uint32_t &state) { // roughly normal: a sum of four
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
        state = state * 1664525u + 1013904223u;
        sum += float(int32_t(state >> 8) - (1 << 23)) / float(1 << 23);
    }
    return sum;
}

uint64_t hash(const std::vector<uint8_t> &bytes) { // FNV-1a
    uint64_t h = 14695981039346656037ull;
    for (const uint8_t b : bytes)
        h = (h ^ b) * 1099511628211ull;
    return h;
}

std::vector<double> second_moments(uint32_t &state) { // of 300 samples, each column leaning on the one before it
    std::vector<double> h(kColumns * kColumns);
    for (int t = 0; t < 300; ++t) {
        float x[kColumns], last = 0;
        for (float &value : x)
            value = last = draw(state) + 0.5f * last;
        for (int64_t i = 0; i < kColumns; ++i)
            for (int64_t j = 0; j < kColumns; ++j)
                h[size_t(i * kColumns + j)] += double(x[i]) * double(x[j]) / 300;
    }
    return h;
}

} // namespace

int main() {
    uint32_t state = 1;
    std::vector<float> x(kRows * kColumns), weights(kColumns);
    for (float &value : x)
        value = draw(state);
    for (float &value : weights)
        value = draw(state) * draw(state) + 2;
    ThreadPool pool(2);
    const Factor factor(pool, second_moments(state).data(), kColumns, 0.01);
    const Format formats[] = {{Scheme::int8, 32, nullptr},  {Scheme::int4, 32, nullptr},
                              {Scheme::int4, 128, nullptr}, {Scheme::codebook4, 64, kCodebook},
                              {Scheme::int3, 64, nullptr},  {Scheme::bf16, 0, nullptr}};
    for (const Format &format : formats)
        for (const Method method : {Method::absmax, Method::rtn, Method::hqq, Method::weighted, Method::gptq}) {
            std::vector<uint8_t> out(size_t((kRows + kTileRows) * kColumns * 4));
            const Rows rows{x.data(), Source::f32, kRows, kColumns};
            const Loss loss = encode(kPortableCoder, pool, rows, format, {method, weights.data(), &factor}, out.data());
            std::printf("%d g%d %d: %016llx %.17g %.17g\n", int(format.scheme), format.group, int(method),
                        static_cast<unsigned long long>(hash(out)), loss.signal, loss.noise);
        }
}

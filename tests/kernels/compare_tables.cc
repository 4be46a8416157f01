// Holds every kernel table that this processor runs against the reference, at odd sizes. Needs nothing but
// the kernels themselves, so that it can be cross-compiled and run under emulation.
//
//   compare_tables [BEST [OTHER ...]]
//
// BEST is the table that must be chosen, OTHER are tables that must be runnable. Prints a line per table with
// the worst relative error (max |difference| / max |reference|) of each operation. Exit status: 0; 1 on a miss;
// 2 when the table that CLOVER_ISA names cannot run here.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comparison.h"
#include "kernels/kernels.h"

namespace clover {
namespace {

constexpr int kRows[] = {1, 2, 3, 5, 8, 9, 17, 33, 70};
constexpr int kMostRows = 70;

// ---- products -------------------------------------------------------------------------------------

// Any bytes are codes; scales are f16 of both signs, normal and subnormal.
std::vector<uint8_t> random_tiles(Scheme scheme, int n, int k, int group) {
    const int code_bytes = group * (scheme == Scheme::int8 ? 16 : scheme == Scheme::int3 ? 6 : 8);
    const int groups = (n + kTileRows - 1) / kTileRows * (k / group);
    std::vector<uint8_t> bytes;
    for (int g = 0; g < groups; ++g) {
        for (int row = 0; row < kTileRows; ++row) {
            const unsigned scale = random_bits() & 0xa7ff;
            bytes.push_back(static_cast<uint8_t>(scale));
            bytes.push_back(static_cast<uint8_t>(scale >> 8));
        }
        for (int i = 0; i < code_bytes; ++i)
            bytes.push_back(static_cast<uint8_t>(random_bits()));
    }
    return bytes;
}

// Activations as a table's own quantize and start values leave them.
struct Rows {
    Rows(const Kernels &table, const Matrix &w, const Floats &x, int rows) {
        const int block = block_of(w.k);
        a = {x.data(), w.k, nullptr, padded_row(w.k), nullptr, nullptr, rows, w.k, block};
        if (!w.group)
            return;
        q.resize(size_t(rows) * padded_row(w.k));
        scale.resize(size_t(rows) * w.k / block);
        sum32.resize(size_t(rows) * w.k / 32);
        start.resize(size_t(rows) * w.k / w.group);
        table.quantize(x.data(), w.k, rows, w.k, block, q.data(), a.ldq, scale.data(), sum32.data());
        start_values(sum32.data(), rows * w.k / w.group, w.group, table.zero_point[int(w.scheme)], start.data());
        a.q = q.data();
        a.scale = scale.data();
        a.start = start.data();
    }
    Activations a;
    std::vector<int8_t> q;
    Floats scale;
    std::vector<int32_t> sum32, start;
};

// [rows, n + 1]: the column behind the last must stay as it is.
Floats product(const Kernels &table, const Matrix &w, const Floats &x, int rows, const int *index = nullptr) {
    const Rows in(table, w, x, index ? kMostRows : rows);
    Floats y(size_t(rows) * (w.n + 1), 7.0f);
    table.matmul({w, in.a, index, rows, y.data(), w.n + 1, 0, (w.n + kTileRows - 1) / kTileRows});
    return y;
}

std::string size_of(const Matrix &w) {
    return "scheme " + std::to_string(int(w.scheme)) + " n " + std::to_string(w.n) + " k " + std::to_string(w.k) +
           " group " + std::to_string(w.group);
}

// Rows of every count are the first rows of the largest call, bit for bit, and gathered rows the rows they name.
void compare_product(Comparison &c, const char *operation, const Matrix &w, double tolerance) {
    const Floats x = random_floats(size_t(kMostRows) * w.k, -2, 2);
    const Floats all = product(c.table, w, x, kMostRows);
    c.check(operation, all, product(reference_table(), w, x, kMostRows), tolerance, size_of(w));
    const auto row = [&](int r) { return all.begin() + std::ptrdiff_t(r) * (w.n + 1); };
    for (int rows : kRows)
        c.check(operation, product(c.table, w, x, rows), Floats(all.begin(), row(rows)), kEqual,
                size_of(w) + " rows " + std::to_string(rows));
    Floats want;
    const int index[] = {32, 0, 7, 69, 7};
    for (int r : index)
        want.insert(want.end(), row(r), row(r + 1));
    c.check(operation, product(c.table, w, x, 5, index), want, kEqual, size_of(w) + " gathered");
}

void compare_packed_products(Comparison &c) {
    const int8_t codebook[16] = {-128, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 127};
    for (Scheme scheme : {Scheme::int8, Scheme::int4, Scheme::codebook4, Scheme::int3})
        for (int group : {32, 64, 128}) {
            if (scheme == Scheme::int3 && group != 64)
                continue;
            const int8_t *values = scheme == Scheme::codebook4 ? codebook : nullptr;
            for (auto [n, groups] : {std::pair(1, 1), std::pair(37, 5), std::pair(19, 9)}) {
                const std::vector<uint8_t> tiles = random_tiles(scheme, n, groups * group, group);
                compare_product(c, "packed", {tiles.data(), scheme, n, groups * group, group, values}, kEqual);
            }
        }
}

void compare_float_products(Comparison &c) {
    for (int k : {1, 3, 7, 9, 17, 33, 100})
        for (int n : {1, 21, 34}) {
            const Floats w = random_floats(size_t(n) * k, -1, 1);
            compare_product(c, "f32", {w.data(), Scheme::f32, n, k, 0}, 2e-6);
            std::vector<uint16_t> halves;
            for (float value : w) {
                uint32_t bits;
                std::memcpy(&bits, &value, sizeof bits);
                halves.push_back(static_cast<uint16_t>(bits >> 16));
            }
            compare_product(c, "bf16", {halves.data(), Scheme::bf16, n, k, 0}, 2e-6);
        }
}

std::vector<HeadStats> statistics(const Kernels &table, const Matrix &w, const Floats &x, const HeadRule &rule) {
    const Rows in(table, w, x, kMostRows);
    Floats scratch(static_cast<size_t>(head_scratch_floats(kMostRows)));
    const int tiles = (w.n + kTileRows - 1) / kTileRows;
    std::vector<HeadStats> stats(static_cast<size_t>(head_stripes(tiles) * kMostRows));
    table.head_stats({w, in.a, nullptr, kMostRows, nullptr, 0, 0, tiles}, rule, scratch.data(), stats.data());
    return stats;
}

void compare_statistics(Comparison &c, const Matrix &w, const Floats &x, const std::string &size) {
    const HeadRule::Penalty penalties[] = {{0, 0.5f}, {3, -1.0f}, {190, 0.25f}, {192, 2.0f}, {530, 0.125f}};
    struct Case {
        int valid, banned;
        float softcap = 0;
    };
    for (auto [valid, banned, softcap] : {Case{1, -1}, Case{17, 3}, Case{193, 192}, Case{531, 0}, Case{531, 9, 4.0f}}) {
        const HeadRule rule{valid, banned, 0.7f, 1.3f, penalties, 5, softcap};
        const auto got = statistics(c.table, w, x, rule), want = statistics(reference_table(), w, x, rule);
        std::vector<int> argmax[2];
        Floats max[2], sum[2];
        for (int i : {0, 1})
            for (const HeadStats &row : i ? want : got) {
                argmax[i].push_back(std::isnan(row.max) ? 0 : row.argmax);
                max[i].push_back(row.max);
                sum[i].push_back(std::isnan(row.max) ? 0 : row.sum_exp);
            }
        const std::string what = size + " valid " + std::to_string(valid);
        c.check("head_argmax", argmax[0], argmax[1], kEqual, what);
        c.check("head_max", max[0], max[1], w.group && softcap == 0 ? kEqual : 2e-6, what);
        c.check("head_sum", sum[0], sum[1], 1e-5, what);
    }
}

void compare_head(Comparison &c) {
    const int n = 531, k = 96;
    Floats x = random_floats(size_t(kMostRows) * k, -1, 1);
    x[5 * k + 50] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<uint8_t> tiles = random_tiles(Scheme::int4, n, k, 32);
    compare_statistics(c, {tiles.data(), Scheme::int4, n, k, 32}, x, "int4");
    Floats w = random_floats(size_t(n) * k, -1, 1);
    compare_statistics(c, {w.data(), Scheme::f32, n, k, 0}, x, "f32");
    w[size_t(189) * k] = std::numeric_limits<float>::infinity(); // one id of a vector in the middle
    compare_statistics(c, {w.data(), Scheme::f32, n, k, 0}, x, "f32 with an infinite logit");
}

// ---- operations on rows ---------------------------------------------------------------------------

void compare_quantize(Comparison &c) {
    for (int k : {32, 96, 64, 320, 256, 640}) {
        const int rows = 7;
        Floats x = random_floats(size_t(rows) * k, -300, 300);
        std::fill_n(x.begin() + k, k, 0.0f);
        x[size_t(2 * k + 5)] = std::numeric_limits<float>::quiet_NaN();
        x[size_t(3 * k + 9)] = -std::numeric_limits<float>::infinity();
        for (int i = 0; i < k; ++i)
            x[size_t(4 * k + i)] *= 1e-40f;
        const Matrix w{nullptr, Scheme::int8, 1, k, 32};
        const Rows got(c.table, w, x, rows), want(reference_table(), w, x, rows);
        const std::string size = "k " + std::to_string(k);
        c.check("quantize", got.q, want.q, kEqual, size);
        c.check("quantize", got.scale, want.scale, kEqual, size);
        c.check("quantize", got.sum32, want.sum32, kEqual, size);
    }
}

void compare_norms(Comparison &c) {
    const int rows = 5, heads = 3;
    for (int n : {1, 3, 4, 7, 17, 31, 65}) {
        const std::string size = "n " + std::to_string(n);
        const int ld = heads * n + 2; // wider than what is written
        const Floats x = random_floats(size_t(rows) * ld, -3, 3), w = random_floats(size_t(n), -1, 1);
        const Floats gate = random_floats(size_t(rows) * ld, -9, 9);
        c.check_run("rmsnorm", x, 2e-6, size, [&](const Kernels &t, float *out) {
            t.rmsnorm(x.data(), ld, w.data(), 1, 1e-6f, rows, n, out, ld);
        });
        c.check_run("l2norm", x, 2e-6, size,
                    [&](const Kernels &t, float *out) { t.l2norm(out, ld, rows, heads, n, 0.3f, out, ld); });
        c.check_run("gated_norm", x, 2e-6, size, [&](const Kernels &t, float *out) {
            t.gated_norm(out, ld, gate.data(), ld, w.data(), 1e-6f, rows, heads, n);
        });
    }
}

void compare_gates(Comparison &c) {
    const int rows = 3;
    for (int n : {1, 3, 4, 7, 17, 65, 301})
        for (float range : {4.0f, 200.0f}) { // the second: beyond where exp overflows
            const std::string size = "n " + std::to_string(n) + " range " + std::to_string(range);
            Floats gate = random_floats(size_t(rows) * n, -range, range);
            gate[0] = std::numeric_limits<float>::quiet_NaN();
            const Floats up = random_floats(size_t(rows) * n, -1, 1);
            c.check_run("silu_mul", up, 2e-6, size, [&](const Kernels &t, float *out) {
                t.silu_mul(gate.data(), n, up.data(), n, rows, n, out, n);
            });
            c.check_run("gelu_mul", up, 2e-6, size, [&](const Kernels &t, float *out) {
                t.gelu_mul(gate.data(), n, up.data(), n, rows, n, out, n);
            });
            c.check_run("sigmoid_mul", up, 2e-6, size,
                        [&](const Kernels &t, float *out) { t.sigmoid_mul(out, n, gate.data(), n, rows, n); });
        }
}

void compare_conv(Comparison &c) {
    for (int taps : {1, 2, 3, 4, 5, 6})
        for (int rows : {1, 2, 9})
            for (bool both_sides : {false, true}) {
                const int channels = 23, past = taps - 1;
                const Floats ring = random_floats(size_t(past * channels + 1), -1, 1);
                const Floats block = random_floats(size_t(rows * channels), -1, 1);
                const Floats w = random_floats(size_t(channels * taps), -1, 1);
                const Floats right = random_floats(size_t(channels * past + 1), -1, 1);
                c.check_run("conv", block, 2e-6, "taps " + std::to_string(taps) + " rows " + std::to_string(rows),
                            [&](const Kernels &t, float *out) {
                                t.conv(ring.data(), block.data(), channels, w.data(),
                                       both_sides && past ? right.data() : nullptr, rows, channels, taps, 2,
                                       channels - 1, out, channels);
                            });
            }
}

// ---- operations that mix rows ---------------------------------------------------------------------

// q, k, v, g and beta of one head, q and k of unit length.
struct DeltaInput {
    DeltaInput(int rows, int dk, int dv)
        : q(random_floats(size_t(rows) * dk, -1, 1)), k(random_floats(size_t(rows) * dk, -1, 1)),
          v(random_floats(size_t(rows) * dv, -1, 1)), g(random_floats(size_t(rows), -2, 0)),
          beta(random_floats(size_t(rows), 0, 1)), scratch(static_cast<size_t>(delta_scratch_floats(rows, dk, dv))) {
        for (Floats *x : {&q, &k})
            reference_table().l2norm(x->data(), dk, rows, 1, dk, 1, x->data(), dk);
        head = {dk,          dv, rows,    q.data(), k.data(), v.data(),      dk, dv, g.data(),
                beta.data(), 1,  nullptr, nullptr,  dv,       scratch.data()};
    }
    DeltaHead with(float *state_and_output) const { // S [dk, dv], then o [rows, dv]
        DeltaHead h = head;
        h.state = state_and_output;
        h.o = state_and_output + h.dk * h.dv;
        return h;
    }
    Floats q, k, v, g, beta, scratch;
    DeltaHead head;
};

void compare_delta(Comparison &c) {
    for (auto [dk, dv] : {std::pair(5, 3), std::pair(33, 17), std::pair(8, 40), std::pair(64, 64)})
        for (int rows : {1, 2, 3, 7, 13, 33}) {
            const std::string size =
                std::to_string(rows) + " rows of " + std::to_string(dk) + ", " + std::to_string(dv);
            const DeltaInput in(rows, dk, dv);
            const Floats state = random_floats(size_t(dk + rows) * dv, -1, 1);
            c.check_run("delta_commit", state, 1e-5, size,
                        [&](const Kernels &t, float *s) { t.delta_commit(in.with(s)); });
            c.check_run("delta_closed", state, 1e-5, size,
                        [&](const Kernels &t, float *s) { t.delta_closed(in.with(s)); });
            for (int queries : {rows, (rows + 1) / 2})
                for (bool value_beta : {false, true})
                    c.check_run("delta_preview", state, 1e-5, size, [&](const Kernels &t, float *s) {
                        t.delta_preview({in.with(s), queries, 3.0f, 0.5f, 0.7f, value_beta});
                    });
        }
}

// Keys or values of `rows` rows as they are stored, rows two heads apart.
std::vector<uint8_t> stored_rows(KvFormat format, int rows, int d) {
    const Floats x = random_floats(size_t(rows) * d, -1, 1);
    std::vector<uint8_t> stored(size_t(rows) * 2 * size_t(kv_bytes(format, d)));
    for (int r = 0; r < rows; ++r)
        store_kv(format, x.data() + r * d, d, stored.data() + 2 * r * kv_bytes(format, d));
    return stored;
}

void compare_heads(Comparison &c, KvFormat format, int d, int heads, int past, int rows) {
    const int first = rows / 2, seen = first + rows + 1; // the rows in question lie in the middle of the pass
    const auto k = stored_rows(format, past + seen, d), v = stored_rows(format, past + seen, d);
    const int ld = heads * d + 3;
    const Floats q = random_floats(size_t(rows) * ld, -1, 1);
    Floats scratch(static_cast<size_t>(attention_scratch_floats(rows, heads, d)));
    for (auto [causal, window] : {std::pair(false, 0), std::pair(true, 0), std::pair(false, 7), std::pair(true, 70)})
        c.check_run("attention", q, 1e-5,
                    "format " + std::to_string(int(format)) + " width " + std::to_string(d) + " heads " +
                        std::to_string(heads) + " past " + std::to_string(past) + " rows " + std::to_string(rows),
                    [&, causal = causal, window = window](const Kernels &t, float *o) {
                        t.attention({rows, heads, d, q.data(), ld, format, k.data(), v.data(), 2 * kv_bytes(format, d),
                                     past, causal, first, seen, 0.5f, o, ld, scratch.data(), window});
                    });
}

void compare_attention(Comparison &c) {
    for (KvFormat format : {KvFormat::f32, KvFormat::f16, KvFormat::int8})
        for (int d : {1, 3, 17, 64})
            for (int heads : {1, 3, 4, 6})
                for (auto [past, rows] : {std::pair(0, 1), std::pair(5, 3), std::pair(130, 1), std::pair(61, 33)})
                    compare_heads(c, format, d, heads, past, rows);
}

int compare_all() {
    int misses = 0;
    for (const char *const *name = available_isas(); *name; ++name) {
        if (std::string(*name) == "reference")
            continue;
        Comparison c(kernels(*name));
        compare_packed_products(c);
        compare_float_products(c);
        compare_head(c);
        compare_quantize(c);
        compare_norms(c);
        compare_gates(c);
        compare_conv(c);
        compare_delta(c);
        compare_attention(c);
        c.print();
        misses += c.misses;
    }
    return misses;
}

// Tables named on the command line that are not there as asked.
int missing_tables(int argc, char **argv) {
    int missing = 0;
    std::vector<std::string> runnable;
    for (const char *const *name = available_isas(); *name; ++name)
        runnable.push_back(*name);
    for (int i = 1; i < argc; ++i)
        if (std::find(runnable.begin(), runnable.end(), argv[i]) == runnable.end()) {
            std::fprintf(stderr, "%s cannot run here\n", argv[i]);
            ++missing;
        }
    const std::string chosen = kernels().isa;
    std::printf("chosen: %s\n", chosen.c_str());
    if (argc > 1 && chosen != argv[1]) {
        std::fprintf(stderr, "expected %s to be chosen\n", argv[1]);
        ++missing;
    }
    return missing;
}

} // namespace
} // namespace clover

int main(int argc, char **argv) {
    try {
        const int missing = clover::missing_tables(argc, argv);
        const int misses = clover::compare_all();
        return missing || misses ? 1 : 0;
    } catch (const clover::UnsupportedError &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}

// One table's results beside the reference's, and random input for both: for compare_tables.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace clover {

using Floats = std::vector<float>;
constexpr double kEqual = 0; // as a tolerance

inline std::mt19937 random_bits(20);

inline Floats random_floats(size_t n, float low, float high) {
    Floats x(n);
    for (float &value : x)
        value = low + (high - low) * static_cast<float>(random_bits() >> 8) * 0x1p-24f;
    return x;
}

inline const Kernels &reference_table() { return kernels("reference"); }

class Comparison {
  public:
    explicit Comparison(const Kernels &table) : table(table) {}

    // NaN equals NaN and nothing else.
    template <typename T>
    void check(const char *operation, const std::vector<T> &got, const std::vector<T> &want, double tolerance,
               const std::string &size) {
        double largest = 1e-30, difference = 0;
        for (size_t i = 0; i < want.size(); ++i) {
            const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
            if (std::isfinite(b))
                largest = std::max(largest, std::fabs(b));
            if (a == b || (std::isnan(a) && std::isnan(b)))
                continue;
            const bool finite = std::isfinite(a) && std::isfinite(b);
            difference = std::max(difference, finite ? std::fabs(a - b) : std::numeric_limits<double>::infinity());
        }
        const double error = difference / largest;
        double &worst = worst_of(operation);
        worst = std::max(worst, error);
        if (error > tolerance && ++misses <= 20)
            std::fprintf(stderr, "%s %s, %s: %.3g > %.3g\n", table.isa, operation, size.c_str(), error, tolerance);
    }

    // Calls run(table, output) for both tables; the output is filled alike before.
    template <typename Run>
    void check_run(const char *operation, const Floats &before, double tolerance, const std::string &size, Run run) {
        Floats got = before, want = before;
        run(table, got.data());
        run(reference_table(), want.data());
        check(operation, got, want, tolerance, size);
    }

    void print() const {
        std::printf("%s:", table.isa);
        for (const auto &[operation, worst] : errors)
            std::printf(" %s %.1e", operation.c_str(), worst);
        std::printf("\n");
    }

    const Kernels &table;
    int misses = 0;

  private:
    double &worst_of(const std::string &operation) {
        for (auto &[name, worst] : errors)
            if (name == operation)
                return worst;
        return errors.emplace_back(operation, 0).second;
    }

    std::vector<std::pair<std::string, double>> errors;
};

} // namespace clover

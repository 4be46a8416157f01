#include <cstdlib>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/reference.h"
#include "kernels/tables.h"

namespace clover {

const Kernels kReferenceKernels = {
    "reference",
    {},
    reference::quantize,
    reference::matmul,
    reference::dequantize_row,
    reference::rmsnorm,
    reference::l2norm,
    reference::silu_mul,
    reference::gelu_mul,
    reference::conv,
    reference::delta_commit,
    reference::delta_closed,
    reference::delta_preview,
    reference::gated_norm,
    reference::attention,
    reference::sigmoid_mul,
    reference::head_stats,
    reference::head_logits,
};

namespace {

// Tables compiled in, best last.
std::vector<const Kernels *> compiled_tables() {
    return {
        &kReferenceKernels,
#ifdef CLOVER_HAVE_AVX2
        &kAvx2Kernels,
#endif
#ifdef CLOVER_HAVE_AVXVNNI
        &kAvxVnniKernels,
#endif
#ifdef CLOVER_HAVE_VNNI256
        &kVnni256Kernels,
#endif
#ifdef CLOVER_HAVE_AVX512VNNI
        &kAvx512VnniKernels,
#endif
#ifdef CLOVER_HAVE_NEON_DOTPROD
        &kNeonDotprodKernels,
#endif
#ifdef CLOVER_HAVE_NEON_I8MM
        &kNeonI8mmKernels,
#endif
    };
}

bool runs_here(const std::string &isa) { return isa == "reference" || missing_features(isa).empty(); }

const Kernels &named_table(const std::string &name) {
    std::string known;
    for (const Kernels *table : compiled_tables()) {
        if (name == table->isa) {
            if (!runs_here(name))
                throw UnsupportedError("instruction set '" + name + "': this processor lacks " +
                                       missing_features(name));
            return *table;
        }
        known += (known.empty() ? "" : ", ") + std::string(table->isa);
    }
    throw UnsupportedError("instruction set '" + name + "' is not in this build; it has: " + known);
}

std::vector<const Kernels *> runnable_tables() {
    std::vector<const Kernels *> tables;
    for (const Kernels *table : compiled_tables())
        if (runs_here(table->isa))
            tables.push_back(table);
    return tables;
}

std::vector<const char *> names_of(const std::vector<const Kernels *> &tables) { // null-terminated
    std::vector<const char *> names;
    for (const Kernels *table : tables)
        names.push_back(table->isa);
    names.push_back(nullptr);
    return names;
}

} // namespace

const Kernels &kernels(const char *force) {
    const char *name = force ? force : std::getenv("CLOVER_ISA");
    if (name && *name)
        return named_table(name);
    return *runnable_tables().back();
}

const char *const *compiled_isas() {
    static const std::vector<const char *> names = names_of(compiled_tables());
    return names.data();
}

const char *const *available_isas() {
    static const std::vector<const char *> names = names_of(runnable_tables());
    return names.data();
}

void start_values(const int32_t *sum32, int groups, int group, int zero_point, int32_t *start) {
    for (int g = 0; g < groups; ++g, sum32 += group / 32) {
        int32_t sum = 0;
        for (int i = 0; i < group / 32; ++i)
            sum += sum32[i];
        start[g] = -zero_point * sum;
    }
}

int64_t delta_scratch_floats(int rows, int dk, int dv) {
    // closed: V' and one row of decays; preview: softmax weights of four rows, padded to whole
    // vectors, or of one row and its history; commit: a strip of 32 columns of S.
    return int64_t(rows) * (dv + 4) + int64_t(dk) * 32 + dv + 128;
}

int64_t attention_scratch_floats(int rows, int heads, int head_dim) {
    // two tiles of keys and values as floats, padded to whole vectors; max and sum of every query
    return 2 * int64_t(kAttentionKeys) * (head_dim + 16) + 2 * int64_t(rows) * heads;
}

int64_t head_scratch_floats(int rows) { return int64_t(rows) * kHeadStripe; }

} // namespace clover

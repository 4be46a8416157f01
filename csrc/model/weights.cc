#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

namespace clover {
namespace {

constexpr int64_t kAlign = 64; // of every tensor's data in its file
constexpr int64_t kMaxDim = int64_t(1) << 28;

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Bits of a code; 0 for floats.
int code_bits(Scheme scheme) {
    switch (scheme) {
    case Scheme::int8:
        return 8;
    case Scheme::int4:
    case Scheme::codebook4:
        return 4;
    case Scheme::int3:
        return 3;
    case Scheme::f32:
    case Scheme::bf16:
        break;
    }
    return 0;
}

// Cannot overflow: the spec bounds n and k by 2^28 and 2^28, and a value takes at most 4 bytes.
int64_t stored_bytes(Scheme scheme, int64_t n, int64_t k, int64_t group) {
    const int bits = code_bits(scheme);
    if (!bits)
        return n * k * (scheme == Scheme::f32 ? 4 : 2);
    // per tile and group: 16 f16 scales, then the codes
    return round_up(n, kTileRows) / kTileRows * (k / group) * (2 * kTileRows + group * kTileRows * bits / 8);
}

std::string text(const std::vector<int64_t> &shape) {
    std::string s = "[";
    for (size_t i = 0; i < shape.size(); i++)
        s += (i ? ", " : "") + std::to_string(shape[i]);
    return s + "]";
}

class Loader {
  public:
    Loader(const Spec &spec, const std::vector<std::string> &files, const std::vector<TensorRow> &table, bool copy)
        : s_(spec) {
        for (const std::string &path : files)
            out_.files.emplace_back(path, copy);
        for (const TensorRow &row : table) {
            check_place(row);
            if (!rows_.emplace(row.name, &row).second)
                fail(row, "is in the table twice");
            out_.bytes += row.bytes * (row.stride ? row.shape[0] : 1); // within the file, so no overflow
            out_.dense_bytes += row.stride ? 0 : row.bytes;
        }
    }

    Weights load() {
        const int64_t vocab = s_.vocab_size, hidden = s_.hidden_size;
        if (s_.drafter()) {
            out_.context.in = matrix("context.in", hidden, hidden * int64_t(s_.drafts_for_layers.size()));
            out_.context.norm = values("context.norm", {hidden});
        } else {
            out_.embed = matrix("embed", vocab, hidden);
            out_.head = s_.tie_embeddings ? out_.embed : matrix("head", vocab, hidden);
        }
        out_.final_norm = values("final_norm", {hidden});
        if (s_.self_conditioning_intermediate) {
            out_.self_conditioning.norm = values("self_conditioning.norm", {hidden});
            out_.self_conditioning.forward = dense("self_conditioning.", s_.self_conditioning_intermediate);
        }
        for (size_t i = 0; i < s_.layers.size(); i++)
            out_.layers.push_back(layer(int(i), "layers." + std::to_string(i) + "."));
        for (const auto &entry : rows_)
            if (!used_.count(entry.first))
                fail(*entry.second, "is not part of this model");
        return std::move(out_);
    }

  private:
    const std::string &path(const TensorRow &row) const { return out_.files[size_t(row.file)].path(); }

    [[noreturn]] void fail(const TensorRow &row, const std::string &reason) const {
        throw FormatError(path(row), row.name, reason);
    }

    // The data lies within the file, on a 64-byte boundary.
    void check_place(const TensorRow &row) const {
        if (row.file < 0 || row.file >= int64_t(out_.files.size()))
            throw FormatError("table", row.name, "file index " + std::to_string(row.file) + " does not exist");
        const int64_t size = int64_t(out_.files[size_t(row.file)].size());
        if (row.shape.empty() || row.shape.size() > 3)
            fail(row, "shape " + text(row.shape) + " has " + std::to_string(row.shape.size()) + " dimensions");
        for (int64_t dim : row.shape)
            if (dim < 1 || dim > kMaxDim)
                fail(row, "shape " + text(row.shape) + " is out of range");
        if (row.offset < 0 || row.bytes < 0 || row.stride < 0)
            fail(row, "offset, bytes or stride is negative");
        const int64_t records = row.stride ? row.shape[0] : 1;
        if (row.stride && (row.shape.size() != 3 || row.bytes > row.stride || row.stride > size / records))
            fail(row, std::to_string(records) + " records of " + std::to_string(row.stride) + " bytes do not fit");
        if (row.bytes > size || row.offset > size - row.bytes - (records - 1) * row.stride)
            fail(row, "data at " + std::to_string(row.offset) + ", " + std::to_string(row.bytes) +
                          " bytes a record, ends behind the file's " + std::to_string(size) + " bytes");
        if (row.offset % kAlign || row.stride % kAlign)
            fail(row, "data at " + std::to_string(row.offset) + " is not on a 64-byte boundary");
    }

    const TensorRow &take(const std::string &name, const std::vector<int64_t> &shape) {
        auto it = rows_.find(name);
        if (it == rows_.end())
            throw FormatError(out_.files.empty() ? "table" : out_.files[0].path(), name, "is missing");
        used_.emplace(name, true);
        if (it->second->shape != shape)
            fail(*it->second, "has shape " + text(it->second->shape) + ", the spec says " + text(shape));
        return *it->second;
    }

    Scheme scheme_of(const TensorRow &row, int64_t k) const {
        const std::optional<Scheme> scheme = scheme_named(row.scheme);
        if (!scheme)
            fail(row, "scheme \"" + row.scheme + "\" is not known");
        if (code_bits(*scheme))
            check_group(row, *scheme, k);
        return *scheme;
    }

    void check_group(const TensorRow &row, Scheme scheme, int64_t k) const {
        const std::string group = "group " + std::to_string(row.group);
        if (scheme == Scheme::int3 && row.group != 64)
            fail(row, group + " is not 64, the one of int3");
        if (row.group != 32 && row.group != 64 && row.group != 128)
            fail(row, group + " is not 32, 64 or 128");
        if (k % row.group)
            fail(row, group + " does not divide its " + std::to_string(k) + " columns");
    }

    // Codes mean values by it, so kernels may rely on its order and on 8 bits of either sign.
    const int8_t *codebook(const TensorRow &row, Scheme scheme) {
        const std::vector<int8_t> &values = row.codebook;
        if (scheme != Scheme::codebook4) {
            if (!values.empty())
                fail(row, row.scheme + " takes no codebook");
            return nullptr;
        }
        std::array<int8_t, 16> book{};
        if (values.size() != book.size())
            fail(row, "codebook has " + std::to_string(values.size()) + " values, not 16");
        std::copy(values.begin(), values.end(), book.begin());
        if (book[0] < -127)
            fail(row, "codebook holds -128, below -127");
        for (size_t i = 1; i < book.size(); i++)
            if (book[i] <= book[i - 1])
                fail(row, "codebook does not ascend at value " + std::to_string(i));
        return out_.codebooks.insert(book).first->data();
    }

    Matrix view(const TensorRow &row, int64_t n, int64_t k) {
        const Scheme scheme = scheme_of(row, k);
        const int64_t expected = stored_bytes(scheme, n, k, row.group);
        if (row.bytes != expected && row.bytes != round_up(expected, kAlign))
            fail(row, std::to_string(row.bytes) + " bytes, " + row.scheme + " " + text(row.shape) + " takes " +
                          std::to_string(expected));
        return Matrix{out_.files[size_t(row.file)].data() + row.offset,
                      scheme,
                      int(n),
                      int(k),
                      code_bits(scheme) ? int(row.group) : 0,
                      codebook(row, scheme)};
    }

    Matrix matrix(const std::string &name, int64_t n, int64_t k) { return view(take(name, {n, k}), n, k); }

    // Matrices that every recipe keeps in float.
    Matrix float_matrix(const std::string &name, int64_t n, int64_t k) {
        const TensorRow &row = take(name, {n, k});
        require_f32(row);
        return view(row, n, k);
    }

    ExpertPart expert_part(const std::string &name, int64_t n, int64_t k) {
        const TensorRow &row = take(name, {s_.num_experts, n, k});
        if (row.stride == 0)
            fail(row, "an expert part needs a record stride");
        return {view(row, n, k), row.stride};
    }

    void require_f32(const TensorRow &row) const {
        if (row.scheme != "f32")
            fail(row, "scheme \"" + row.scheme + "\", must be f32");
    }

    // Small tensors that enter the arithmetic one by one: a NaN in them would spoil every row.
    const float *values(const std::string &name, const std::vector<int64_t> &shape) {
        const TensorRow &row = take(name, shape);
        require_f32(row);
        const int64_t columns = shape.size() > 1 ? shape[1] : 1;
        const float *v = static_cast<const float *>(view(row, shape[0], columns).data);
        for (int64_t i = 0; i < shape[0] * columns; i++)
            if (!std::isfinite(v[i]))
                fail(row, "value " + std::to_string(i) + " is not finite");
        return v;
    }

    LayerWeights layer(int number, const std::string &prefix) {
        LayerWeights w{};
        w.kind = s_.layers[size_t(number)];
        w.feed_forward = s_.feed_forward[size_t(number)];
        w.norm1 = values(prefix + "norm1", {s_.hidden_size});
        w.norm2 = values(prefix + "norm2", {s_.hidden_size});
        if (s_.post_norms) {
            w.post_norm1 = values(prefix + "post_norm1", {s_.hidden_size});
            w.post_norm2 = values(prefix + "post_norm2", {s_.hidden_size});
        }
        if (w.kind == LayerKind::attention)
            w.attn = attention(s_.attention(number), prefix + "attn.");
        else
            w.delta = deltanet(prefix + "delta.");
        if (w.has_experts())
            w.moe = experts(prefix);
        if (w.has_dense())
            w.dense = dense(prefix + "dense.", s_.dense_intermediate);
        if (w.has_experts() && w.has_dense()) {
            w.expert_norm = values(prefix + "expert_norm", {s_.hidden_size});
            w.dense_post_norm = values(prefix + "dense_post_norm", {s_.hidden_size});
            w.expert_post_norm = values(prefix + "expert_post_norm", {s_.hidden_size});
        }
        w.commit_scale = s_.layer_scales ? *values(prefix + "commit_scale", {1}) : 1;
        w.preview_scale = s_.layer_scales && s_.preview ? *values(prefix + "preview_scale", {1}) : w.commit_scale;
        return w;
    }

    AttentionWeights attention(const AttentionShape &shape, const std::string &prefix) {
        AttentionWeights w{};
        w.in = matrix(prefix + "in", shape.in_rows(), s_.hidden_size);
        w.out = matrix(prefix + "out", s_.hidden_size, shape.q_width());
        if (s_.attn_in_bias)
            w.in_bias = values(prefix + "in_bias", {shape.in_rows(), 1});
        if (s_.attn_out_bias)
            w.out_bias = values(prefix + "out_bias", {s_.hidden_size});
        if (s_.qk_norm) {
            w.q_norm = values(prefix + "q_norm", {shape.head_dim});
            w.k_norm = values(prefix + "k_norm", {shape.head_dim});
        }
        return w;
    }

    DeltaWeights deltanet(const std::string &prefix) {
        const int64_t channels = s_.conv_channels(), heads = s_.delta_v_heads;
        DeltaWeights w{};
        w.in = matrix(prefix + "in", s_.delta_in_rows(), s_.hidden_size);
        w.ba = float_matrix(prefix + "ba", 2 * heads, s_.hidden_size);
        w.out = matrix(prefix + "out", s_.hidden_size, s_.value_width());
        w.conv = values(prefix + "conv", {channels, s_.conv_taps});
        w.A_log = values(prefix + "A_log", {heads});
        w.dt_bias = values(prefix + "dt_bias", {heads});
        w.norm = values(prefix + "norm", {s_.delta_v_dim});
        if (!s_.preview || s_.causal_delta())
            return w;
        w.conv_right = values(prefix + "conv_right", {channels, s_.conv_taps - 1});
        w.logit_scale = values(prefix + "logit_scale", {heads});
        w.history_bias = values(prefix + "history_bias", {heads});
        w.history_c = values(prefix + "history_c", {heads});
        return w;
    }

    DenseWeights dense(const std::string &prefix, int64_t inner) {
        const int64_t hidden = s_.hidden_size;
        DenseWeights w{};
        w.gate_up = matrix(prefix + "gate_up", 2 * inner, hidden);
        w.down = matrix(prefix + "down", hidden, inner);
        return w;
    }

    MoeWeights experts(const std::string &prefix) {
        const int64_t hidden = s_.hidden_size, inner = s_.expert_intermediate, shared = s_.shared_intermediate;
        MoeWeights w{};
        w.router = float_matrix(prefix + "router", s_.num_experts, hidden);
        w.gate = expert_part(prefix + "experts.gate", inner, hidden);
        w.up = expert_part(prefix + "experts.up", inner, hidden);
        w.down = expert_part(prefix + "experts.down", hidden, inner);
        if (shared) {
            w.shared_gate_up = matrix(prefix + "shared.gate_up", 2 * shared, hidden);
            w.shared_down = matrix(prefix + "shared.down", hidden, shared);
            if (s_.shared_gate)
                w.shared_gate = float_matrix(prefix + "shared_gate", 1, hidden);
        }
        if (s_.router_bias)
            w.router_bias = values(prefix + "router_bias", {s_.num_experts});
        if (s_.router_norm)
            w.router_norm = values(prefix + "router_norm", {hidden});
        if (s_.expert_scales)
            w.scales = values(prefix + "expert_scales", {s_.num_experts});
        return w;
    }

    const Spec &s_;
    Weights out_;
    std::map<std::string, const TensorRow *> rows_;
    std::map<std::string, bool> used_;
};

} // namespace

int64_t matrix_bytes(const Matrix &w) { return stored_bytes(w.scheme, w.n, w.k, w.group); }

Matrix rows_from(const Matrix &w, int first) {
    Matrix front = w, rest = w;
    front.n = first;
    rest.n -= first;
    rest.data = static_cast<const uint8_t *>(w.data) + matrix_bytes(front);
    return rest;
}

void Weights::will_need(const Matrix &w) const {
    const auto *data = static_cast<const uint8_t *>(w.data);
    for (const FileMap &file : files)
        if (data >= file.data() && data < file.data() + file.size())
            file.will_need(size_t(data - file.data()), size_t(matrix_bytes(w)));
}

std::optional<Scheme> scheme_named(const std::string &name) {
    const char *const names[kSchemes] = {"f32", "bf16", "int8", "int4", "codebook4", "int3"};
    for (int i = 0; i < kSchemes; i++)
        if (name == names[i])
            return Scheme(i);
    return std::nullopt;
}

int64_t file_bytes(const std::vector<std::string> &files) {
    int64_t sum = 0;
    for (const std::string &file : files) {
        std::error_code error;
        const auto bytes = std::filesystem::file_size(file, error);
        sum += error ? 0 : int64_t(bytes);
    }
    return sum;
}

Weights load_weights(const Spec &spec, const std::vector<std::string> &files, const std::vector<TensorRow> &table,
                     bool copy) {
    return Loader(spec, files, table, copy).load();
}

} // namespace clover

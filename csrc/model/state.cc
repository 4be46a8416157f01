#include "model/state.h"

#include <algorithm>

#include "model/memory.h"

namespace clover {
namespace {

constexpr int64_t kChunkRows = 256; // least growth of the caches

int64_t delta_floats(const Spec &s) {
    return int64_t(s.delta_v_heads) * s.delta_k_dim * s.delta_v_dim + int64_t(s.conv_taps - 1) * s.conv_channels();
}

int64_t record_floats(const Spec &s, int64_t rows) {
    return delta_floats(s) + rows * (s.conv_channels() + s.key_width() + s.value_width() + 2 * s.delta_v_heads);
}

// Keys, or values, of one token in one layer.
int64_t row_bytes(const Spec &s, KvFormat format, int layer) {
    const AttentionShape shape = s.attention(layer);
    return shape.kv_heads * kv_bytes(format, shape.head_dim);
}

// Keys and values of one token in all layers.
int64_t token_bytes(const Spec &s, KvFormat format) {
    int64_t sum = 0;
    for (size_t i = 0; i < s.layers.size(); i++)
        if (s.layers[i] == LayerKind::attention)
            sum += 2 * row_bytes(s, format, int(i));
    return sum;
}

int64_t layers_of(const Spec &s, LayerKind kind) { return std::count(s.layers.begin(), s.layers.end(), kind); }

} // namespace

void copy_delta(const std::vector<DeltaState> &from, std::vector<DeltaState> &to) {
    to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) {
        to[i].S.assign(from[i].S.data(), from[i].S.size());
        to[i].ring.assign(from[i].ring.data(), from[i].ring.size());
    }
}

State::State(const Spec &spec, int64_t capacity, KvFormat format)
    : capacity(capacity), format(format), kv(spec.layers.size()), delta(spec.layers.size()),
      previewed_hidden(spec.block_mask() ? spec.hidden_size : 0), hidden(spec.hidden_size), spec_(spec) {
    for (size_t i = 0; i < spec.layers.size(); i++) {
        if (spec.layers[i] != LayerKind::deltanet)
            continue;
        delta[i].S.resize(int64_t(spec.delta_v_heads) * spec.delta_k_dim * spec.delta_v_dim);
        delta[i].ring.resize(int64_t(spec.conv_taps - 1) * spec.conv_channels());
    }
    reset();
}

void State::require_whole() const {
    if (broken)
        throw Error("an error ended a commit half way; restore a snapshot or truncate the state to 0");
}

void State::reserve(int64_t rows) {
    if (rows <= reserved_)
        return;
    previewed.clear(); // only settled rows move along
    passes++;
    const int64_t wanted = std::max(rows, std::min(capacity, std::max(reserved_ + reserved_ / 2, kChunkRows)));
    require_memory("keys and values of " + std::to_string(wanted) + " tokens",
                   (wanted - reserved_) * token_bytes(spec_, format));
    for (size_t i = 0; i < kv.size(); i++) {
        if (spec_.layers[i] != LayerKind::attention)
            continue;
        const int64_t row = kv_row_bytes(int(i));
        kv[i].k.grow(wanted * row, settled() * row);
        kv[i].v.grow(wanted * row, settled() * row);
    }
    reserved_ = wanted;
}

void State::reserve_kept(int rows) {
    const int64_t floats = int64_t(rows) * int64_t(kept_layers.size()) * spec_.hidden_size;
    if (floats <= kept.size())
        return;
    require_memory("what a drafter reads", floats * int64_t(sizeof(float)));
    kept.resize(floats);
}

void State::reset() {
    position = 0;
    passes++;
    open.clear();
    previewed.clear();
    broken = cut = false;
    marks.clear();
    for (DeltaState &d : delta) {
        d.S.clear();
        d.ring.clear();
    }
    hidden.clear();
    drop_rollback();
}

// Keys and values of the first rows.
void State::copy_rows(const State &from, int64_t rows) {
    reserve(rows);
    for (size_t i = 0; rows && i < kv.size(); i++) {
        const int64_t bytes = spec_.layers[i] == LayerKind::attention ? rows * kv_row_bytes(int(i)) : 0;
        std::copy_n(from.kv[i].k.data(), bytes, kv[i].k.data());
        std::copy_n(from.kv[i].v.data(), bytes, kv[i].v.data());
    }
}

// Everything but the caches' rows and the marks.
void State::copy_point(const State &from) {
    copy_delta(from.delta, delta);
    hidden.assign(from.hidden.data(), from.hidden.size());
    cut = from.cut;
    position = from.position;
    open = from.open;
    previewed.clear();
    passes++;
    broken = from.broken;
    drop_rollback();
    marks.clear();
}

State State::snapshot() const {
    require_memory("a snapshot of " + std::to_string(position) + " tokens", bytes(spec_, format, position));
    State copy(spec_, capacity, format);
    copy.copy_rows(*this, settled());
    copy.copy_point(*this);
    return copy;
}

void State::restore(const State &from) {
    if (from.position > capacity)
        throw ContextLengthError("a state at position " + std::to_string(from.position) +
                                 " does not fit into a capacity of " + std::to_string(capacity) + " tokens");
    if (&from == this)
        return;
    copy_rows(from, from.settled());
    copy_point(from);
}

void State::begin_rollback(int rows) {
    const int64_t layers = layers_of(spec_, LayerKind::deltanet);
    require_memory("the record that a rollback needs", layers * record_floats(spec_, rows) * int64_t(sizeof(float)));
    drop_rollback();
    rollback.start = position;
    rollback.cut = cut;
    rollback.delta.resize(delta.size());
    rollback.hidden.resize(int64_t(1 + rows) * spec_.hidden_size);
    std::copy_n(hidden.data(), spec_.hidden_size, rollback.hidden.data());
    for (size_t i = 0; i < delta.size(); i++) {
        if (spec_.layers[i] != LayerKind::deltanet)
            continue;
        DeltaRecord &r = rollback.delta[i];
        r.S.assign(delta[i].S.data(), delta[i].S.size());
        r.ring.assign(delta[i].ring.data(), delta[i].ring.size());
        r.M.resize(int64_t(rows) * spec_.conv_channels());
        r.kv.resize(int64_t(rows) * (spec_.key_width() + spec_.value_width()));
        r.g.resize(int64_t(rows) * spec_.delta_v_heads);
        r.beta.resize(int64_t(rows) * spec_.delta_v_heads);
    }
    rollback.rows = rows;
}

void State::drop_rollback() { rollback = Rollback(); }

int64_t State::bytes() const {
    int64_t sum = bytes(spec_, format, reserved_) + kept.bytes() + marks_bytes();
    if (rollback.rows)
        sum += layers_of(spec_, LayerKind::deltanet) * record_floats(spec_, rollback.rows) * int64_t(sizeof(float)) +
               rollback.hidden.bytes();
    return sum;
}

int64_t State::kv_row_bytes(int layer) const { return row_bytes(spec_, format, layer); }

int64_t State::bytes(const Spec &s, KvFormat format, int64_t rows) {
    const int64_t rows_kept = s.block_mask() ? 2 : 1;
    const int64_t floats = layers_of(s, LayerKind::deltanet) * delta_floats(s) + rows_kept * s.hidden_size;
    return floats * int64_t(sizeof(float)) + rows * token_bytes(s, format);
}

} // namespace clover

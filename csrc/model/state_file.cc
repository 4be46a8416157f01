// Everything is in words of eight bytes, little-endian, what is shorter filled up with zeros:
//   magic, version, bytes in all; form of keys and values, layers; what a layer holds, two words each;
//   the point where the state is; the number of marks, and each mark's point;
//   the state's floats and rows, layer by layer; each mark's floats; a checksum of all words in front.
// A point: position, flags, hidden size, open ids, these. The words of the magic read backwards on a big-endian
// machine, which therefore refuses what another one wrote.
#include "model/state_file.h"

#include <algorithm>
#include <cstring>

namespace clover {
namespace {

constexpr uint64_t kMagic = 0x5441545352564c43; // "CLVRSTAT"
constexpr int64_t kVersion = 1;
constexpr int64_t kWord = 8;

// Each step is a bijection of h: words that differ in one place never have the same sum.
uint64_t add_word(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15;
    return h ^ (h >> 32);
}

uint64_t add_bytes(uint64_t h, const uint8_t *data, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kWord) {
        uint64_t word = 0;
        std::memcpy(&word, data + at, size_t(std::min(kWord, bytes - at)));
        h = add_word(h, word);
    }
    return h;
}

int64_t padded(int64_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

[[noreturn]] void bad(const std::string &field, const std::string &reason) {
    throw FormatError("state", field, reason);
}

class Writer {
  public:
    explicit Writer(const Sink &sink) : sink_(sink) {} // an empty one: counts alone

    void number(int64_t value) { bytes(&value, kWord); }
    void bytes(const void *data, int64_t n) {
        constexpr uint8_t zeros[kWord] = {};
        written += padded(n);
        if (!sink_ || n == 0)
            return;
        sum = add_bytes(sum, static_cast<const uint8_t *>(data), n);
        sink_(data, size_t(n));
        if (n % kWord)
            sink_(zeros, size_t(padded(n) - n));
    }
    void floats(const Buffer<float> &from) { bytes(from.data(), from.bytes()); }

    int64_t written = 0;
    uint64_t sum = 0;

  private:
    const Sink &sink_;
};

class Reader {
  public:
    Reader(const uint8_t *data, int64_t bytes) : at_(data), left_(bytes) {}

    const uint8_t *bytes(const std::string &field, int64_t n) {
        if (n < 0 || n > left_ || padded(n) > left_)
            bad(field, "takes " + std::to_string(n) + " bytes, " + std::to_string(left_) + " are left");
        const uint8_t *from = at_;
        at_ += padded(n);
        left_ -= padded(n);
        return from;
    }
    int64_t number(const std::string &field, int64_t low, int64_t high) {
        int64_t value;
        std::memcpy(&value, bytes(field, kWord), kWord);
        if (value < low || value > high)
            bad(field,
                std::to_string(value) + " is outside [" + std::to_string(low) + ", " + std::to_string(high) + "]");
        return value;
    }
    void same(const std::string &field, int64_t wanted, const char *of) {
        const int64_t found = number(field, INT64_MIN, INT64_MAX);
        if (found != wanted)
            bad(field, std::to_string(found) + " is not the " + of + "'s " + std::to_string(wanted));
    }
    void floats(const std::string &field, Buffer<float> &to) {
        const uint8_t *from = bytes(field, to.bytes());
        if (to.bytes())
            std::memcpy(to.data(), from, size_t(to.bytes()));
    }
    int64_t left() const { return left_; }

  private:
    const uint8_t *at_;
    int64_t left_;
};

std::string layer_name(size_t i) { return "layers." + std::to_string(i); }

// What is common to a state and its marks.
template <class Point> void write_point(Writer &w, const Point &p, int64_t flags) {
    w.number(p.position);
    w.number(flags);
    w.number(p.hidden.size());
    w.number(int64_t(p.open.size()));
    for (int id : p.open)
        w.number(id);
}

void write_floats(Writer &w, const std::vector<DeltaState> &delta, const Buffer<float> &hidden) {
    w.floats(hidden);
    for (const DeltaState &d : delta) {
        w.floats(d.S);
        w.floats(d.ring);
    }
}

void write_layers(Writer &w, const State &state) {
    for (size_t i = 0; i < state.delta.size(); i++) {
        const bool recurrent = state.delta[i].S.size() > 0;
        w.number(recurrent ? state.delta[i].S.size() : 0);
        w.number(recurrent ? state.delta[i].ring.size() : state.kv_row_bytes(int(i)));
    }
}

void write_all(Writer &w, const State &state, int64_t bytes) {
    w.number(int64_t(kMagic));
    w.number(kVersion);
    w.number(bytes);
    w.number(int64_t(state.format));
    w.number(int64_t(state.kv.size()));
    write_layers(w, state);
    write_point(w, state, state.cut);
    w.number(int64_t(state.marks.size()));
    for (const Mark &mark : state.marks)
        write_point(w, mark, mark.cut + 2 * mark.asked);
    write_floats(w, state.delta, state.hidden);
    for (size_t i = 0; i < state.kv.size(); i++) {
        if (state.delta[i].S.size() > 0)
            continue;
        w.bytes(state.kv[i].k.data(), state.settled() * state.kv_row_bytes(int(i)));
        w.bytes(state.kv[i].v.data(), state.settled() * state.kv_row_bytes(int(i)));
    }
    for (const Mark &mark : state.marks)
        write_floats(w, mark.delta, mark.hidden);
    w.number(int64_t(w.sum));
}

// What was written at all, and is whole.
void check_frame(const uint8_t *data, int64_t bytes) {
    Reader frame(data, bytes);
    if (frame.number("magic", INT64_MIN, INT64_MAX) != int64_t(kMagic))
        bad("magic", "is not that of a saved state");
    const int64_t version = frame.number("version", INT64_MIN, INT64_MAX);
    if (version != kVersion)
        bad("version", std::to_string(version) + " is not supported (" + std::to_string(kVersion) + " is)");
    frame.same("bytes", bytes, "data");
    if (bytes % kWord || frame.left() < kWord)
        bad("bytes", std::to_string(bytes) + " are no saved state");
    uint64_t sum;
    std::memcpy(&sum, data + bytes - kWord, kWord);
    if (sum != add_bytes(0, data, bytes - kWord))
        bad("checksum", "does not fit: the data are damaged");
}

// Tokens at the end of `position` that a state keeps open.
int64_t open_tokens(const Spec &s, int64_t position) {
    return s.full_mask() ? position : s.block_mask() && s.absolute_blocks() ? position % s.block_size : 0;
}

// Of a state or a mark, without its floats; the flags.
int64_t read_point(Reader &r, const Spec &s, const std::string &field, int64_t most, int64_t flags, Mark &p) {
    p.position = r.number(field + ".position", 0, most);
    const int64_t found = r.number(field + ".flags", 0, flags);
    r.same(field + ".hidden", s.hidden_size, "model");
    const int64_t open = open_tokens(s, p.position);
    r.same(field + ".open", open, "position");
    for (int64_t i = 0; i < open; i++) {
        p.open.push_back(int(r.number(field + ".open", 0, s.vocab_size - 1)));
        if (p.open.back() == s.mask_token_id)
            bad(field + ".open", "holds the mask token");
    }
    p.cut = found & 1;
    return found;
}

void read_floats(Reader &r, const std::string &field, std::vector<DeltaState> &delta, Buffer<float> &hidden) {
    r.floats(field + ".hidden", hidden);
    for (size_t i = 0; i < delta.size(); i++) {
        r.floats(field + "." + layer_name(i) + ".S", delta[i].S);
        r.floats(field + "." + layer_name(i) + ".ring", delta[i].ring);
    }
}

void read_layers(Reader &r, const State &state) {
    r.same("layers", int64_t(state.kv.size()), "model");
    for (size_t i = 0; i < state.kv.size(); i++) {
        const bool recurrent = state.delta[i].S.size() > 0;
        r.same(layer_name(i) + ".S", state.delta[i].S.size(), "model");
        r.same(layer_name(i) + (recurrent ? ".ring" : ".row"),
               recurrent ? state.delta[i].ring.size() : state.kv_row_bytes(int(i)), "model");
    }
}

// The points of the marks; their floats follow.
void read_marks(Reader &r, const Spec &s, const Mark &point, State &state) {
    const int64_t count = r.number("marks", 0, state.cuttable() ? 0 : r.left() / (4 * kWord));
    int64_t before = 0;
    for (int64_t i = 0; i < count; i++) {
        const std::string field = "marks." + std::to_string(i);
        Mark mark;
        mark.asked = read_point(r, s, field, point.position, 3, mark) & 2;
        if (mark.position <= before || mark.settled() > point.settled())
            bad(field, "at position " + std::to_string(mark.position) + " does not ascend within the state");
        before = mark.position;
        state.marks.push_back(std::move(mark));
    }
}

// Keys and values; the state is still an empty one.
void read_rows(Reader &r, State &state, int64_t rows) {
    std::vector<const uint8_t *> k(state.kv.size()), v(state.kv.size());
    const auto bytes = [&](size_t i) { return state.delta[i].S.size() ? 0 : rows * state.kv_row_bytes(int(i)); };
    for (size_t i = 0; i < state.kv.size(); i++) { // all are there, or nothing is reserved
        k[i] = r.bytes(layer_name(i) + ".k", bytes(i));
        v[i] = r.bytes(layer_name(i) + ".v", bytes(i));
    }
    state.reserve(rows);
    for (size_t i = 0; i < state.kv.size(); i++) {
        std::copy_n(k[i], bytes(i), state.kv[i].k.data());
        std::copy_n(v[i], bytes(i), state.kv[i].v.data());
    }
}

} // namespace

void save_state(const State &state, const Sink &sink) {
    state.require_whole();
    const Sink none;
    Writer count(none), writer(sink);
    write_all(count, state, 0);
    write_all(writer, state, count.written);
}

State load_state(const Model &model, const uint8_t *data, int64_t bytes, int64_t max_tokens) {
    check_frame(data, bytes);
    State state = model.new_state(max_tokens);
    Reader r(data + 3 * kWord, bytes - 4 * kWord);
    r.same("kv", int64_t(state.format), "model");
    read_layers(r, state);
    Mark point;
    read_point(r, model.spec, "point", model.spec.max_positions, 1, point);
    if (point.position > max_tokens)
        throw ContextLengthError("a saved state at position " + std::to_string(point.position) +
                                 " does not fit into a capacity of " + std::to_string(max_tokens) + " tokens");
    read_marks(r, model.spec, point, state);
    read_floats(r, "state", state.delta, state.hidden);
    read_rows(r, state, point.settled());
    for (size_t i = 0; i < state.marks.size(); i++) {
        Mark &mark = state.marks[i];
        copy_delta(state.delta, mark.delta); // of the same sizes
        mark.hidden.resize(state.hidden.size());
        read_floats(r, "marks." + std::to_string(i), mark.delta, mark.hidden);
    }
    if (r.left())
        bad("bytes", std::to_string(r.left()) + " are left over");
    state.position = point.position;
    state.open = std::move(point.open);
    state.cut = point.cut;
    return state;
}

} // namespace clover

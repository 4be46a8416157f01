#include "quant/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace clover::quant {

namespace {

constexpr int64_t kPiece = 1 << 16; // elements of a thread's turn

// Calls body(value of an element) for elements [first, last), in order.
template <class Body> void for_values(const Rows &rows, int64_t first, int64_t last, Body body) {
    const auto *halves = static_cast<const uint16_t *>(rows.data);
    const auto *floats = static_cast<const float *>(rows.data);
    if (rows.type == Source::bf16)
        for (int64_t i = first; i < last; ++i)
            body(i, from_bf16(halves[i]));
    else if (rows.type == Source::f16)
        for (int64_t i = first; i < last; ++i)
            body(i, from_half(halves[i]));
    else
        for (int64_t i = first; i < last; ++i)
            body(i, floats[i]);
}

uint16_t to_bf16(float x) { // nearest, ties to even; infinity beyond
    const uint32_t bits = bits_of(x);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void put(uint8_t *out, uint32_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i)
        out[i] = static_cast<uint8_t>(bits >> (8 * i));
}

Loss encode_piece(const Rows &rows, Scheme scheme, int64_t first, int64_t last, uint8_t *out) {
    Loss loss;
    bool finite = true, fits = true;
    for_values(rows, first, last, [&](int64_t i, float x) {
        finite = finite && std::isfinite(x);
        if (scheme == Scheme::f32) {
            put(out + 4 * i, bits_of(x), 4);
        } else {
            const uint16_t bits = to_bf16(x);
            fits = fits && (bits & 0x7f80) != 0x7f80;
            put(out + 2 * i, bits, 2);
            const double error = double(x) - double(from_bf16(bits));
            loss.noise += error * error;
            loss.worst = std::max(loss.worst, float(std::fabs(error)));
        }
        loss.signal += double(x) * double(x);
        loss.largest = std::max(loss.largest, std::fabs(x));
    });
    if (!finite)
        refuse_infinite(rows, first, last);
    if (!fits)
        throw ArgumentError("a value of " + text(loss.largest) + " is beyond bfloat16");
    return loss;
}

} // namespace

std::string text(float x) {
    char out[32];
    std::snprintf(out, sizeof out, "%g", double(x));
    return out;
}

void refuse_infinite(const Rows &rows, int64_t first, int64_t last) {
    int64_t found = -1;
    float value = 0;
    for_values(rows, first, last, [&](int64_t i, float x) {
        if (found < 0 && !std::isfinite(x)) {
            found = i;
            value = x;
        }
    });
    throw ArgumentError("holds " + text(value) + " (row " + std::to_string(found / rows.k) + ", column " +
                        std::to_string(found % rows.k) + "): not finite");
}

void add(Loss &sum, const Loss &part) {
    sum.signal += part.signal;
    sum.noise += part.noise;
    sum.largest = std::max(sum.largest, part.largest);
    sum.worst = std::max(sum.worst, part.worst);
}

Loss encode_floats(ThreadPool &pool, const Rows &rows, Scheme scheme, uint8_t *out) {
    const int64_t size = rows.n * rows.k, pieces = (size + kPiece - 1) / kPiece;
    std::vector<Loss> losses(static_cast<size_t>(pieces));
    pool.run(pieces, [&](int64_t piece, int) {
        const int64_t first = piece * kPiece;
        losses[size_t(piece)] = encode_piece(rows, scheme, first, std::min(first + kPiece, size), out);
    });
    Loss all;
    for (const Loss &part : losses)
        add(all, part);
    return all;
}

} // namespace clover::quant

#include "quant/quantise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quant/rows.h"

namespace clover::quant {

namespace {

// Candidate scales are these multiples of (largest element) / (outermost level), each refitted in closed form. Fewer
// levels want more clipping. Where columns differ in weight, the largest element may be one that hardly counts: the
// grid is coarser and reaches further down, and either sign is tried.
constexpr float kGrid[kFactors] = {0.80f, 0.85f, 0.90f, 0.95f, 1.00f, 1.05f, 1.10f, 1.15f, 1.20f};
constexpr float kWideGrid[kFactors] = {0.60f, 0.66f, 0.72f, 0.78f, 0.84f, 0.90f, 0.97f, 1.04f, 1.12f};
constexpr float kWeightedGrid[kFactors] = {0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 1.0f, 1.1f, 1.2f};

constexpr float kLeastWeight = 1e-6f; // of a group's largest: a column that nothing is known of still counts

Levels levels_of(const Format &format) {
    Levels levels{format.scheme, 0, 0, {}, {}};
    switch (format.scheme) {
    case Scheme::int8:
        levels.lowest = -127, levels.highest = 127;
        break;
    case Scheme::int3:
        levels.lowest = -4, levels.highest = 3;
        break;
    case Scheme::codebook4:
        for (int i = 0; i < 16; ++i) {
            levels.values[i] = format.codebook[i];
            levels.borders[i] = i ? 0.5f * float(format.codebook[i - 1] + format.codebook[i]) : 0;
        }
        levels.lowest = levels.values[0], levels.highest = levels.values[15];
        break;
    default:
        levels.lowest = -8, levels.highest = 7;
    }
    return levels;
}

int64_t group_bytes(const Format &format) {
    const int64_t bits = format.scheme == Scheme::int8 ? 8 : format.scheme == Scheme::int3 ? 3 : 4;
    return 2 * kTileRows + kTileRows * format.group * bits / 8;
}

// Packs tiles of 16 rows; one for each worker.
class TileCoder {
  public:
    TileCoder(const Coder &coder, const Rows &rows, const Format &format, const How &how)
        : coder_(coder), rows_(rows), format_(format), how_(how), levels_(levels_of(format)),
          x_(size_t(format.group) * kTileRows), target_(x_.size()), weights_(size_t(format.group)) {
        if (how.method == Method::gptq)
            delta_.resize(size_t(rows.k) * kTileRows);
    }

    Loss code(int64_t tile, uint8_t *out) {
        Loss loss;
        const int64_t bytes = group_bytes(format_), groups = rows_.k / format_.group;
        out += tile * groups * bytes;
        for (int64_t g = 0; g < groups; ++g)
            code_group(tile, g * format_.group, out + g * bytes, loss);
        return loss;
    }

  private:
    void code_group(int64_t tile, int64_t first, uint8_t *out, Loss &loss) {
        load(tile, first);
        Group group{x_.data(), weigh(first), format_.group};
        const float *values = x_.data();
        float largest[kTileRows], scale[kTileRows];
        if (!coder_.largest(group, largest))
            refuse_infinite(rows_, tile * kTileRows * rows_.k, std::min(rows_.n, (tile + 1) * kTileRows) * rows_.k);
        if (how_.method == Method::gptq) {
            const Factor &f = *how_.factor;
            coder_.feedback(x_.data(), delta_.data(), first, f.m() + first, f.k(), format_.group, target_.data());
            values = target_.data();
            const Group target{values, group.weights, format_.group};
            float reach[kTileRows];
            if (!coder_.largest(target, reach))
                throw ArgumentError("error feedback left the range of float32");
            find_scales(target, reach, scale);
            store_scales(scale, out);
            coder_.chase(group, levels_, scale, f.m() + first * (f.k() + 1), f.k(), target_.data(),
                         delta_.data() + first * kTileRows);
        } else {
            find_scales(group, largest, scale);
            store_scales(scale, out);
        }
        GroupLoss lost;
        coder_.pack(group, values, levels_, largest, scale, out + 2 * kTileRows, lost);
        count(largest, lost, tile, loss);
    }

    void load(int64_t tile, int64_t first) {
        const int count = int(std::min<int64_t>(kTileRows, rows_.n - tile * kTileRows));
        for (int r = 0; r < kTileRows; ++r) {
            const int64_t from = (tile * kTileRows + r) * rows_.k + first;
            float *to = x_.data() + r;
            if (r >= count)
                for (int c = 0; c < format_.group; ++c)
                    to[c * kTileRows] = 0;
            else if (rows_.type == Source::bf16)
                spread(static_cast<const uint16_t *>(rows_.data) + from, to, from_bf16);
            else if (rows_.type == Source::f16)
                spread(static_cast<const uint16_t *>(rows_.data) + from, to, from_half);
            else
                spread(static_cast<const float *>(rows_.data) + from, to, [](float x) { return x; });
        }
    }

    template <class Stored, class Widen> void spread(const Stored *from, float *to, Widen widen) const {
        for (int c = 0; c < format_.group; ++c)
            to[c * kTileRows] = widen(from[c]);
    }

    // The columns' weights in units of the group's largest; none when all count alike.
    const float *weigh(int64_t first) {
        const float *from = how_.method == Method::weighted ? how_.weights
                            : how_.method == Method::gptq   ? how_.factor->d()
                                                            : nullptr;
        if (!from)
            return nullptr;
        const float most = *std::max_element(from + first, from + first + format_.group);
        if (!(most > 0))
            return nullptr;
        for (int c = 0; c < format_.group; ++c)
            weights_[size_t(c)] = std::max(from[first + c] / most, kLeastWeight);
        return weights_.data();
    }

    void find_scales(const Group &group, const float *largest, float *scale) const {
        const float nearer = std::min(-levels_.lowest, levels_.highest);
        if (how_.method == Method::absmax || format_.scheme == Scheme::int8) {
            for (int r = 0; r < kTileRows; ++r)
                scale[r] = std::fabs(largest[r]) / nearer;
            return;
        }
        const bool weighted = how_.method == Method::weighted || how_.method == Method::gptq;
        const bool book = format_.scheme == Scheme::codebook4;
        const float ends[2] = {levels_.lowest, book ? levels_.highest : -levels_.lowest};
        const float *grid = weighted ? kWeightedGrid : format_.scheme == Scheme::int3 ? kWideGrid : kGrid;
        coder_.search(group, levels_, largest, ends, book || weighted ? 2 : 1, grid, scale);
        if (how_.method == Method::hqq)
            coder_.split(group, levels_, largest, scale);
    }

    // Rounds the scales to float16 and writes them: the codes will answer to what is stored.
    static void store_scales(float *scale, uint8_t *out) {
        for (int r = 0; r < kTileRows; ++r) {
            uint16_t half = to_half(scale[r]);
            if ((half & 0x7c00) == 0x7c00)
                throw ArgumentError("a group needs a scale of " + text(scale[r]) + ", beyond float16");
            if (half == 0x8000) // one zero: a negative one would make equal matrices differ in their bytes
                half = 0;
            out[2 * r] = uint8_t(half & 255);
            out[2 * r + 1] = uint8_t(half >> 8);
            scale[r] = from_half(half);
        }
    }

    void count(const float *largest, const GroupLoss &lost, int64_t tile, Loss &loss) const {
        const int rows = int(std::min<int64_t>(kTileRows, rows_.n - tile * kTileRows));
        for (int r = 0; r < rows; ++r) {
            const double size = std::fabs(largest[r]);
            if (lost.signal[r] > 0) {
                loss.signal += lost.signal[r] * size * size;
                loss.noise += lost.noise[r] * size * size;
            } else
                for (int c = 0; c < format_.group; ++c) { // too small for units of the largest: all is lost
                    const double x = x_[size_t(c * kTileRows + r)];
                    loss.signal += x * x;
                    loss.noise += x * x;
                }
            loss.largest = std::max(loss.largest, std::fabs(largest[r]));
            loss.worst = std::max(loss.worst, lost.worst[r]);
        }
    }

    const Coder &coder_;
    const Rows &rows_;
    const Format &format_;
    const How &how_;
    const Levels levels_;
    std::vector<float> x_, target_, weights_, delta_;
};

} // namespace

Loss encode(const Coder &coder, ThreadPool &pool, const Rows &rows, const Format &format, const How &how,
            uint8_t *out) {
    if (format.scheme == Scheme::f32 || format.scheme == Scheme::bf16)
        return encode_floats(pool, rows, format.scheme, out);
    const int64_t tiles = (rows.n + kTileRows - 1) / kTileRows;
    std::vector<Loss> losses(static_cast<size_t>(tiles));
    std::vector<TileCoder> workers(size_t(pool.size()), TileCoder(coder, rows, format, how));
    pool.run(tiles, [&](int64_t tile, int worker) { losses[size_t(tile)] = workers[size_t(worker)].code(tile, out); });
    Loss all;
    for (const Loss &part : losses)
        add(all, part);
    return all;
}

} // namespace clover::quant

// The functions of a Coder over kLanes rows at a time. Included inside an anonymous namespace after lanes.h.

constexpr float kTiny = 1e-30f; // far below what a float16 scale can hold; inverses of less may overflow

// Adding this and taking it away again rounds to the nearest integer, ties to even, up to 2^22.
constexpr float kMagic = 12582912.0f;
constexpr int32_t kMagicBits = 0x4b400000;

inline F inverse(F x) { return magnitude(x) > all(kTiny) ? all(1.0f) / x : F{}; }

struct Even { // every integer from lowest to highest
    explicit Even(const Levels &levels) : lowest(all(levels.lowest)), highest(all(levels.highest)) {}
    F shifted(F u) const { return smaller(larger(u, lowest), highest) + all(kMagic); }
    F level(F u) const { return shifted(u) - all(kMagic); }
    I code(F u) const { return bits(shifted(u)) - all(kMagicBits) - base(); }
    F value(I code) const { return __builtin_convertvector(code + base(), F); }

  private:
    I base() const { return __builtin_convertvector(lowest, I); }
    F lowest, highest;
};

struct Signed : Even { // codes are the levels themselves, as bytes
    using Even::Even;
    I code(F u) const { return (bits(shifted(u)) - all(kMagicBits)) & all(255); }
    F value(I code) const { return __builtin_convertvector((code ^ all(128)) - all(128), F); }
};

struct Book { // sixteen values; on a border the upper one wins
    explicit Book(const Levels &levels) : levels(levels), search(levels) {}
    F level(F u) const { return value(code(u)); }
    I code(F u) const { return search.code(u); }
    F value(I code) const { return pick(levels.values, code); }

  private:
    const Levels &levels;
    Search search;
};

template <class T> struct Strip;
template <class T> struct Strip<const T &> {
    using Type = T;
};
template <class T> using Plain = typename Strip<T>::Type;

template <class Body> void with_levels(const Levels &levels, Body body) {
    if (levels.scheme == Scheme::codebook4)
        body(Book(levels));
    else if (levels.scheme == Scheme::int8)
        body(Signed(levels));
    else
        body(Even(levels));
}

bool largest(const Group &group, float *out) {
    bool finite = true;
    for (int r = 0; r < kTileRows; r += kLanes) {
        F high = load(group.x + r), low = high, poison = F{};
        for (int c = 0; c < group.columns; ++c) {
            const F x = load(group.x + c * kTileRows + r);
            high = larger(high, x);
            low = smaller(low, x);
            poison += x * F{}; // NaN from an infinity or a NaN, and stays so
        }
        store(out + r, high > F{} - low ? high : low);
        for (int i = 0; i < kLanes; ++i)
            finite = finite && poison[i] == 0;
    }
    return finite;
}

// The best scale so far, of groups whose largest element is 1, and how much of the squared sum it explains.
struct Best {
    F gain, scale;
};

template <int count, bool weighted, class Grid>
inline void try_scales(const float *unit, const Group &group, const Grid &levels, const F (&steps)[count], Best &best) {
    F xc[count], cc[count];
    for (int i = 0; i < count; ++i)
        xc[i] = cc[i] = F{};
    for (int c = 0; c < group.columns; ++c) {
        const F x = load(unit + c * kLanes);
        const F w = weighted ? all(group.weights[c]) : F{};
        for (int i = 0; i < count; ++i) {
            const F level = levels.level(x * steps[i]);
            const F wl = weighted ? w * level : level;
            xc[i] += x * wl;
            cc[i] += level * wl;
        }
    }
    for (int i = 0; i < count; ++i) {
        const F norm = larger(cc[i], all(1e-9f));
        const F gain = xc[i] * xc[i] / norm; // squared error after the refit is sum x^2 - gain
        const I better = gain > best.gain;
        best.gain = better ? gain : best.gain;
        best.scale = better ? xc[i] / norm : best.scale;
    }
}

template <bool weighted, class Grid>
void search_with(const Group &group, const Grid &levels, const float *largest, const float *ends, int count,
                 const float *factors, float *scale) {
    constexpr int kAtOnce = 3; // more sums would not fit into 16 registers
    static_assert(kFactors % kAtOnce == 0, "candidates come in threes");
    alignas(64) float unit[kMostColumns * kLanes];
    for (int r = 0; r < kTileRows; r += kLanes) {
        const F top = load(largest + r), shrink = inverse(top);
        for (int c = 0; c < group.columns; ++c)
            store(unit + c * kLanes, load(group.x + c * kTileRows + r) * shrink);
        Best best{all(-1.0f), F{}};
        for (int end = 0; end < count; ++end)
            for (int f = 0; f < kFactors; f += kAtOnce) {
                F steps[kAtOnce];
                for (int i = 0; i < kAtOnce; ++i)
                    steps[i] = all(ends[end] / factors[f + i]);
                try_scales<kAtOnce, weighted>(unit, group, levels, steps, best);
            }
        store(scale + r, top * best.scale);
    }
}

void search(const Group &group, const Levels &levels, const float *largest, const float *ends, int count,
            const float *factors, float *scale) {
    with_levels(levels, [&](const auto &l) {
        if (group.weights)
            search_with<true>(group, l, largest, ends, count, factors, scale);
        else
            search_with<false>(group, l, largest, ends, count, factors, scale);
    });
}

// Half-quadratic splitting: in turn the errors that |e|^(3/4) leaves standing, and the scale that least squares finds
// for the rest (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023; they have a
// zero point to refit, we have the scale). Errors are in steps.
template <class Grid> void split_with(const Group &group, const Grid &levels, const float *largest, float *scale) {
    constexpr int kRounds = 20;
    constexpr float kStart = 10.0f, kGrowth = 1.01f;
    for (int r = 0; r < kTileRows; r += kLanes) {
        const F shrink = inverse(load(largest + r));
        F now = load(scale + r) * shrink, best = now, least = all(3e38f);
        I alive = all(-1); // rows that the last round made better
        float beta = kStart;
        for (int round = 0; round <= kRounds && any(alive); ++round, beta *= kGrowth) {
            const F step = inverse(now), threshold = all(1.0f / beta);
            F sum{}, xc{}, cc{};
            for (int c = 0; c < group.columns; ++c) {
                const F u = load(group.x + c * kTileRows + r) * shrink * step;
                const F level = levels.level(u), error = u - level, size = magnitude(error);
                const F half = root(size), quarter = root(half);
                sum += half * quarter;
                // |e| - |e|^(-1/4) / beta where that is positive
                const F kept = larger(size - threshold / larger(quarter, all(1e-9f)), F{});
                const F standing = error < F{} ? F{} - kept : kept;
                xc += (u - standing) * level;
                cc += level * level;
            }
            const F cost = sum * root(magnitude(now) * root(magnitude(now))); // to the power 3/4, like the errors
            alive &= cost < least;
            least = alive ? cost : least;
            best = alive ? now : best;
            now = now * (xc / larger(cc, all(1e-9f)));
        }
        store(scale + r, best * load(largest + r));
    }
}

void split(const Group &group, const Levels &levels, const float *largest, float *scale) {
    with_levels(levels, [&](const auto &l) { split_with(group, l, largest, scale); });
}

inline void store_words(uint8_t *out, I words) { __builtin_memcpy(out, &words, sizeof words); }

// The loss of one vector of rows, gathered.
struct Sums {
    F signal{}, noise{}, worst{};
    void add(F x, F stored, F shrink) {
        const F error = x - stored, x1 = x * shrink, e1 = error * shrink;
        signal += x1 * x1;
        noise += e1 * e1;
        worst = larger(worst, magnitude(error));
    }
    void put(GroupLoss &loss, int r) const {
        store(loss.signal + r, signal);
        store(loss.noise + r, noise);
        store(loss.worst + r, worst);
    }
};

// One quad, columns c .. c + 3, of kLanes rows: byte j of a word is column c + j.
template <class Grid> struct Quads {
    const Group &group;
    const float *values;
    const Grid &levels;
    F scale, step, shrink;
    int r;
    Sums sums;

    I code(int c) {
        const I code = levels.code(load(values + c * kTileRows + r) * step);
        sums.add(load(group.x + c * kTileRows + r), levels.value(code) * scale, shrink);
        return code;
    }
    I word(int c) { return code(c) | code(c + 1) << 8 | code(c + 2) << 16 | code(c + 3) << 24; }
};

template <class Quads> void pack_bytes(Quads &quads, uint8_t *out) {
    for (int c = 0; c < quads.group.columns; c += 4)
        store_words(out + 16 * c, quads.word(c));
}

template <class Quads> void pack_nibbles(Quads &quads, uint8_t *out) {
    for (int c = 0; c < quads.group.columns; c += 8) {
        const I low = quads.word(c);
        store_words(out + 8 * c, low | quads.word(c + 4) << 4);
    }
}

template <class Quads> void pack_threes(Quads &quads, uint8_t *out) {
    I high[2] = {};
    for (int i = 0; i < 4; ++i) {
        I low{};
        for (int s = 0; s < 4; ++s) {
            const I word = quads.word(16 * i + 4 * s);
            low |= (word & all(0x03030303)) << (2 * s);
            high[i / 2] |= (word >> 2 & all(0x01010101)) << (4 * (i % 2) + s);
        }
        store_words(out + 64 * i, low);
    }
    store_words(out + 256, high[0]);
    store_words(out + 320, high[1]);
}

void pack(const Group &group, const float *values, const Levels &levels, const float *largest, const float *scale,
          uint8_t *out, GroupLoss &loss) {
    with_levels(levels, [&](const auto &l) {
        for (int r = 0; r < kTileRows; r += kLanes) {
            const F size = load(scale + r);
            Quads<Plain<decltype(l)>> quads{group, values, l, size, inverse(size), inverse(load(largest + r)), r, {}};
            if (levels.scheme == Scheme::int8)
                pack_bytes(quads, out + 4 * r);
            else if (levels.scheme == Scheme::int3)
                pack_threes(quads, out + 4 * r);
            else
                pack_nibbles(quads, out + 4 * r);
            quads.sums.put(loss, r);
        }
    });
}

void feedback(const float *x, const float *delta, int64_t done, const float *m, int64_t ld, int columns,
              float *target) {
    constexpr int kAtOnce = 8;
    for (int r = 0; r < kTileRows; r += kLanes)
        for (int c = 0; c < columns; c += kAtOnce) {
            F sum[kAtOnce];
            for (int i = 0; i < kAtOnce; ++i)
                sum[i] = F{};
            for (int64_t j = 0; j < done; ++j) {
                const F d = load(delta + j * kTileRows + r);
                for (int i = 0; i < kAtOnce; ++i)
                    sum[i] += d * all(m[j * ld + c + i]);
            }
            for (int i = 0; i < kAtOnce; ++i)
                store(target + (c + i) * kTileRows + r, load(x + (c + i) * kTileRows + r) + sum[i]);
        }
}

void chase(const Group &group, const Levels &levels, const float *scale, const float *m, int64_t ld, float *target,
           float *delta) {
    with_levels(levels, [&](const auto &l) {
        for (int r = 0; r < kTileRows; r += kLanes) {
            const F size = load(scale + r), step = inverse(size);
            for (int c = 0; c < group.columns; ++c) {
                const F stored = l.level(load(target + c * kTileRows + r) * step) * size;
                const F d = load(group.x + c * kTileRows + r) - stored;
                store(delta + c * kTileRows + r, d);
                for (int b = c + 1; b < group.columns; ++b) {
                    float *behind = target + b * kTileRows + r;
                    store(behind, load(behind) + d * all(m[c * ld + b]));
                }
            }
        }
    });
}

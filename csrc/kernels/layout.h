// Addresses inside packed tiles and other arithmetic that every table shares. Included inside the
// anonymous namespace of each file (see kernels.h), so it includes nothing itself.

// Bytes of one group of one tile: 16 f16 scales, then the codes.
constexpr int64_t group_bytes(Scheme scheme, int group) {
    return 32 + int64_t(group) * (scheme == Scheme::int8 ? 16 : scheme == Scheme::int3 ? 6 : 8);
}

inline const uint8_t *tile_group(const Matrix &w, int tile, int g) {
    const int64_t groups = w.k / w.group;
    return static_cast<const uint8_t *>(w.data) + (tile * groups + g) * group_bytes(w.scheme, w.group);
}

// Row of the activations that row r of a call reads.
inline int64_t source_row(const MatmulCall &call, int r) { return call.index ? call.index[r] : r; }

// Columns of the output in [first, last) for a call's range of tiles.
struct Columns {
    int first, last;
};

inline Columns columns(const MatmulCall &call) {
    const int last = call.tile1 * kTileRows;
    return {call.tile0 * kTileRows, last < call.w.n ? last : call.w.n};
}

// Where a product goes: element (row r, column i) at y[r * ldy + i - origin].
struct Output {
    float *y;
    int64_t ldy;
    int origin;
    float *at(int r, int i) const { return y + r * ldy + (i - origin); }
};

// Below this a block counts as zero: 127 / max would overflow.
constexpr float kSmallestMax = 1e-36f;

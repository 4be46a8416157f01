// How packed codes become bytes in a vector, for all instruction sets. Included inside an anonymous namespace
// after Vec and layout.h. quant/tiles.py states the layout.

// dot[v][r] <- start[r]
template <int V, int R> inline void start_all(const int32_t (&start)[R], Vec::I (&dot)[V][R]) {
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v)
            dot[v][r] = Vec::set_int(start[r]);
}

// What decoding needs beside the codes: the values of a codebook's codes.
struct DecodeTable {
    Vec::Bytes values;
};

// Columns k + 4 half .. k + 4 half + 3 of a group, k a multiple of 8, for part `part` of the tile's rows. Unsigned
// codes of int4 (zero point 8) and int3 (4) as they are; signed ones of int8 and codebook4 as they are.
template <Scheme scheme, int half>
inline Vec::Bytes decode_codes(const uint8_t *codes, int64_t k, int part, const DecodeTable &table) {
    codes += part * 4 * Vec::width;
    if constexpr (scheme == Scheme::int8) {
        return Vec::load_bytes(codes + 16 * k + 64 * half);
    } else if constexpr (scheme == Scheme::int3) {
        const int64_t chunk = k / 4 + half; // of 16 in a group of 64
        const Vec::Bytes low = Vec::load_bytes(codes + chunk / 4 * 64);
        const Vec::Bytes high = Vec::load_bytes(codes + 256 + chunk / 8 * 64);
        return Vec::join_bits(low, static_cast<int>(chunk % 4 * 2), high, static_cast<int>(chunk % 8));
    } else {
        const Vec::Bytes both = Vec::load_bytes(codes + 8 * k);
        const Vec::Bytes code = half ? Vec::high_nibbles(both) : Vec::nibbles(both);
        return scheme == Scheme::codebook4 ? Vec::look_up(table.values, code) : code;
    }
}

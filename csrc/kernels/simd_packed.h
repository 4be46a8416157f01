// Products of int8 activations with packed weights. Included inside an anonymous namespace after
// simd_math.h and an instruction set's own
//
//   struct Dot
//     tiles_streamed, tiles_in_place, tiles_staged
//                                    tiles of a block: one or two rows, few rows, many rows
//     Table, table(w)                what decode() needs beside the codes
//     decode<scheme, half>(codes, k, part, table)
//                                    columns k + 4 half .. + 3 of a group, Vec::width rows of the tile
//     multiply<group>(codes, at, q, start, dot)
//                                    dot[v][r] = start[r] + the group's codes of vector v times those of row r
//                                    from column `at` on
//
// A block of tiles by kBlockRows rows has its sums in registers. Few rows: codes are decoded as they
// are read. Many rows: a stretch of columns is decoded once into the first cache ("staged"), for all rows.

constexpr int kParts = kTileRows / Vec::width; // vectors that hold a tile's rows
constexpr int kBlockRows = 4;                  // activation rows of a block
constexpr int kRowsInPlace = 2 * kBlockRows;   // up to here decoding again costs less than staging
constexpr int kStreamRows = 2;               // up to here memory sets the pace: twice the tiles, streams in more pages
constexpr int kStage = 256, kStageRows = 64; // columns and rows: with the sums they fill 40 of 48 KiB
constexpr int kAhead = 2048;                 // bytes: memory answers within the time of so many

// Decoded codes are 0 .. 15.
constexpr bool has_small_codes(Scheme scheme) { return scheme == Scheme::int4 || scheme == Scheme::int3; }

// Codes as they lie in the file. (Addresses are 64-bit sums here and below: sign extensions of narrower ones
// take ports from the dot products.)
template <Scheme scheme, int group_columns, int T> struct InPlace {
    const uint8_t *tile[T];
    Dot::Table table;
    int64_t ahead; // bytes from what is read to what is fetched
    int64_t turn;  // first group that fetches the tiles behind these T, and how much farther they are
    int64_t jump;

    struct Group {
        static constexpr bool small = has_small_codes(scheme);
        const uint8_t *tile[T];
        Dot::Table table;
        int64_t ahead;

        template <int half> Vec::Bytes load(int v, int64_t k) const {
            const uint8_t *codes = tile[v / kParts] + 2 * kTileRows;
            if (v % kParts == 0 && half == 0)
                Vec::prefetch(codes + 8 * k + ahead);
            return Dot::template decode<scheme, half>(codes, k, v % kParts, table);
        }
        Vec::F scale(int v) const { return Vec::load_half(tile[v / kParts] + 2 * Vec::width * (v % kParts)); }
    };
    Group group(int64_t g) const {
        Group at;
        for (int t = 0; t < T; ++t)
            at.tile[t] = tile[t] + g * group_bytes(scheme, group_columns);
        at.table = table;
        at.ahead = g < turn ? ahead : ahead + jump;
        return at;
    }
};

// A stretch of columns as decode() gave them: [columns / 4][16 rows][4], and the scales as floats.
template <bool small_codes, int group_columns> struct Staged {
    const uint8_t *codes; // [tiles][kStage / 4][64]
    const float *scales;  // [tiles][kStage / 32][16], only the first groups used when they are wider
    int64_t first;        // the stretch's first group, in groups of the matrix

    struct Group {
        static constexpr bool small = small_codes;
        const uint8_t *codes;
        const float *scales;

        template <int half> Vec::Bytes load(int v, int64_t k) const {
            return Vec::load_bytes(codes + (v / kParts * kStage + k) * kTileRows + 64 * half +
                                   v % kParts * 4 * Vec::width);
        }
        Vec::F scale(int v) const {
            return Vec::load(scales + v / kParts * (kStage / 32) * kTileRows + v % kParts * Vec::width);
        }
    };
    Group group(int64_t g) const {
        return {codes + (g - first) * group_columns * kTileRows, scales + (g - first) * kTileRows};
    }
};

// Makes the compiler keep sums in memory until they are next used.
template <class Sums> inline void in_memory(Sums &sums) {
#if defined(__GNUC__)
    __asm__ volatile("" : "+m"(sums));
#else
    static_cast<void>(sums);
#endif
}

template <int R> struct CodedRows {
    const int8_t *q[R];
    const float *scale[R];
    const int32_t *start[R];

    CodedRows(const MatmulCall &call, int row) {
        const int64_t k = call.w.k;
        for (int r = 0; r < R; ++r) {
            const int64_t source = source_row(call, row + r);
            q[r] = call.a.q + source * call.a.ldq;
            scale[r] = call.a.scale + source * (k / call.a.block);
            start[r] = call.a.start + source * (k / call.w.group);
        }
    }
};

// sums [R][T * 16] += W x over columns [k0, k1): exact integers inside a group, one fused multiply-add
// for each group of a block, one for the block. A function of its own: inlined into more, GCC runs out of registers.
template <int group, int T, int R, class Source>
[[gnu::noinline]] void add_columns(const Source &source, const CodedRows<R> &x, int64_t block, int64_t k0, int64_t k1,
                                   float *sums) {
    constexpr int V = T * kParts;
    for (int64_t k = k0; k < k1; k += block) {
        Vec::F part[V][R];
        for (auto &vector : part)
            for (Vec::F &sum : vector)
                sum = Vec::zero();
        for (int64_t g = k / group; g < (k + block) / group; ++g) {
            Vec::I dot[V][R];
            int32_t start[R];
            for (int r = 0; r < R; ++r)
                start[r] = x.start[r][g];
            const auto codes = source.group(g);
            Dot::template multiply<group>(codes, g * group, x.q, start, dot);
            for (int v = 0; v < V; ++v) {
                const Vec::F scale = codes.scale(v);
                for (int r = 0; r < R; ++r)
                    part[v][r] = Vec::fma(Vec::to_float(dot[v][r]), scale, part[v][r]);
            }
            if constexpr (Vec::registers < 32) // the products need them all
                in_memory(part);
        }
        for (int r = 0; r < R; ++r) {
            const Vec::F scale = Vec::set(x.scale[r][k / block]);
            for (int v = 0; v < V; ++v) {
                float *at = sums + (r * V + v) * Vec::width;
                Vec::store(at, Vec::fma(part[v][r], scale, Vec::load(at)));
            }
        }
    }
}

// The sums of `rows` rows of T tiles to the output.
template <int T> inline void put_sums(const Output &out, const float *sums, int row0, int rows, int tile, int last) {
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < T * kParts; ++v) {
            const int column = tile * kTileRows + v * Vec::width, lanes = smaller(Vec::width, last - column);
            if (lanes > 0)
                Vec::store(out.at(row0 + r, column), Vec::load(sums + (r * T * kParts + v) * Vec::width), lanes);
        }
}

template <Scheme scheme, int group, int T, int Most>
inline void rows_in_place(const MatmulCall &call, const Output &out, int tile, int last) {
    InPlace<scheme, group, T> source;
    for (int t = 0; t < T; ++t)
        source.tile[t] = tile_group(call.w, tile + t, 0);
    source.table = Dot::table(call.w);
    const int64_t groups = call.w.k / group, tile_bytes = groups * group_bytes(scheme, group);
    source.ahead = kAhead;
    source.turn = groups - kAhead / group_bytes(scheme, group);
    source.jump = (T - 1) * tile_bytes;
    for_row_blocks<Most>(call.rows, [&](int row, auto count) {
        constexpr int R = decltype(count)::value;
        alignas(64) float sums[R * T * kTileRows] = {};
        add_columns<group, T, R>(source, CodedRows<R>(call, row), call.a.block, 0, call.w.k, sums);
        put_sums<T>(out, sums, row, R, tile, last);
        source.ahead = T * tile_bytes; // the next tiles, while these are at hand
        source.turn = groups;
    });
}

struct Stage {
    alignas(64) uint8_t codes[Dot::tiles_staged * kStage * kTileRows];
    alignas(64) float scales[Dot::tiles_staged * kStage / 32 * kTileRows];
    alignas(64) float sums[kStageRows * Dot::tiles_staged * kTileRows];
};

// Decodes columns [k0, k1) of one tile.
template <Scheme scheme, int group>
inline void stage_tile(const Matrix &w, int tile, int k0, int k1, uint8_t *codes, float *scales) {
    const Dot::Table table = Dot::table(w);
    const uint8_t *from = tile_group(w, tile, k0 / group);
    for (int k = k0; k < k1; k += group, from += group_bytes(scheme, group), scales += kTileRows) {
        for (int p = 0; p < kParts; ++p)
            Vec::store(scales + p * Vec::width, Vec::load_half(from + 2 * Vec::width * p));
        for (int c = 0; c < group; c += 8, codes += 8 * kTileRows)
            for (int p = 0; p < kParts; ++p) {
                uint8_t *to = codes + p * 4 * Vec::width;
                Vec::store_bytes(to, Dot::template decode<scheme, 0>(from + 2 * kTileRows, c, p, table));
                Vec::store_bytes(to + 64, Dot::template decode<scheme, 1>(from + 2 * kTileRows, c, p, table));
            }
    }
}

// The bytes that will be staged next, fetched in small portions between blocks of rows: all at once would
// fill the buffers for outstanding loads and stall.
template <int T> struct Ahead {
    const uint8_t *tile[T];
    int64_t bytes; // of each tile

    void fetch(int portion, int portions) const {
        const int64_t lines = (bytes + 63) / 64;
        for (int64_t line = lines * portion / portions; line < lines * (portion + 1) / portions; ++line)
            for (int t = 0; t < T; ++t)
                Vec::prefetch(tile[t] + 64 * line);
    }
};

template <Scheme scheme, int group, int T>
inline void rows_staged(const MatmulCall &call, const Output &out, Stage &stage, int tile, int last) {
    const int k = call.w.k;
    for (int row0 = 0; row0 < call.rows; row0 += kStageRows) {
        const int rows = smaller(kStageRows, call.rows - row0);
        for (int i = 0; i < rows * T * kTileRows; i += Vec::width)
            Vec::store(stage.sums + i, Vec::zero());
        for (int k0 = 0; k0 < k; k0 += kStage) {
            const int k1 = smaller(k0 + kStage, k);
            const int next_tile = k1 < k ? tile : row0 + rows < call.rows ? tile : smaller(tile + T, call.tile1 - 1);
            Ahead<T> ahead;
            ahead.bytes = kStage / group * group_bytes(scheme, group);
            for (int t = 0; t < T; ++t) {
                stage_tile<scheme, group>(call.w, tile + t, k0, k1, stage.codes + t * kStage * kTileRows,
                                          stage.scales + t * (kStage / 32) * kTileRows);
                ahead.tile[t] = tile_group(call.w, next_tile + t, k1 < k ? k1 / group : 0);
            }
            const Staged<has_small_codes(scheme), group> source{stage.codes, stage.scales, k0 / group};
            const int portions = (rows + kBlockRows - 1) / kBlockRows;
            int portion = 0;
            for_row_blocks<kBlockRows>(rows, [&](int row, auto count) {
                constexpr int R = decltype(count)::value;
                ahead.fetch(portion++, portions);
                add_columns<group, T, R>(source, CodedRows<R>(call, row0 + row), call.a.block, k0, k1,
                                         stage.sums + row * T * kTileRows);
            });
        }
        put_sums<T>(out, stage.sums, row0, rows, tile, last);
    }
}

// `Tiles` at a time: that many streams of memory.
template <Scheme scheme, int group, int Tiles, int Most>
void tiles_in_place(const MatmulCall &call, const Output &out, int last) {
    for (int tile = call.tile0; tile < call.tile1; tile += Tiles)
        call_with_count<Tiles>(tile, smaller(Tiles, call.tile1 - tile), [&](int at, auto count) {
            rows_in_place<scheme, group, decltype(count)::value, Most>(call, out, at, last);
        });
}

template <Scheme scheme, int group> void packed_tiles(const MatmulCall &call, const Output &out, int last) {
    constexpr int in_place = Dot::tiles_in_place, staged = Dot::tiles_staged;
    if (call.rows <= kStreamRows)
        return tiles_in_place<scheme, group, Dot::tiles_streamed, kStreamRows>(call, out, last);
    if (call.rows <= kRowsInPlace)
        return tiles_in_place<scheme, group, in_place, kBlockRows>(call, out, last);
    Stage stage;
    for (int tile = call.tile0; tile < call.tile1; tile += staged)
        call_with_count<staged>(tile, smaller(staged, call.tile1 - tile), [&](int at, auto count) {
            rows_staged<scheme, group, decltype(count)::value>(call, out, stage, at, last);
        });
}

template <Scheme scheme> void packed_groups(const MatmulCall &call, const Output &out) {
    const int last = columns(call).last;
    if (scheme == Scheme::int3 || call.w.group == 64)
        packed_tiles<scheme, 64>(call, out, last);
    else if (call.w.group == 32)
        packed_tiles<scheme, scheme == Scheme::int3 ? 64 : 32>(call, out, last);
    else
        packed_tiles<scheme, scheme == Scheme::int3 ? 64 : 128>(call, out, last);
}

void packed(const MatmulCall &call, const Output &out) {
    switch (call.w.scheme) {
    case Scheme::int8:
        return packed_groups<Scheme::int8>(call, out);
    case Scheme::codebook4:
        return packed_groups<Scheme::codebook4>(call, out);
    case Scheme::int3:
        return packed_groups<Scheme::int3>(call, out);
    default:
        return packed_groups<Scheme::int4>(call, out);
    }
}

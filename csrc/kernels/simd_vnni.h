// Dot (simd_packed.h) on vpdpbusd, 256 or 512 bits wide. It multiplies unsigned by signed bytes, so weights
// enter with an offset that the starting value of a sum takes off again: all exact in int32.
struct Dot {
    // Twelve sums of 16 rows hide the latency of vpdpbusd and leave registers for their floats. Half as wide and
    // with 16 registers, one tile has to do.
    static constexpr int tiles_in_place = Vec::width == 16 ? 3 : 1;
    static constexpr int tiles_streamed = Vec::width == 16 ? 4 : 2;
    static constexpr int tiles_staged = Vec::width == 16 ? 3 : 1;

    static constexpr int byte_offset = 128; // what makes a signed byte unsigned

    using Table = DecodeTable;
    static Table table(const Matrix &w) {
        if (!w.codebook)
            return {Vec::zero_int()};
        return {Vec::flip_signs(Vec::repeat16(w.codebook))};
    }

    template <Scheme scheme, int half>
    static Vec::Bytes decode(const uint8_t *codes, int64_t k, int part, const Table &table) {
        const Vec::Bytes code = decode_codes<scheme, half>(codes, k, part, table);
        return scheme == Scheme::int8 ? Vec::flip_signs(code) : code;
    }

    template <int group, class Group, int V, int R>
    static void multiply(const Group &codes, int64_t at, const int8_t *const (&q)[R], const int32_t (&start)[R],
                         Vec::I (&dot)[V][R]) {
        start_all(start, dot);
        multiply_by_dots<group>(codes, at, q, dot);
    }
};

// Dot::multiply (simd_packed.h) for instruction sets with a four-way dot product of bytes. Included inside
// an anonymous namespace after Vec.
template <int group, class Group, int V, int R>
inline void multiply_by_dots(const Group &codes, int64_t at, const int8_t *const (&q)[R], Vec::I (&dot)[V][R]) {
    const auto add = [&](const Vec::Bytes(&w)[V], int64_t k) {
        for (int r = 0; r < R; ++r) {
            const Vec::Bytes x = Vec::four_codes(q[r] + at + k); // serves all vectors: a load is half the cost of a dot
            for (int v = 0; v < V; ++v)
                dot[v][r] = Vec::dot(dot[v][r], w[v], x);
        }
    };
    for (int64_t c = 0; c < group; c += 32)
#pragma GCC unroll 4
        for (int i = 0; i < 32; i += 8) {
            const int64_t k = c + i;
            Vec::Bytes w[V];
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<0>(v, k);
            add(w, k);
            for (int v = 0; v < V; ++v)
                w[v] = codes.template load<1>(v, k);
            add(w, k + 4);
        }
}

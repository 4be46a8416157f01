// Attention with an online softmax, written in Vec. Included inside an anonymous namespace after simd_mixers.h.

constexpr int kKeys = kAttentionKeys;
constexpr int kQuads = 4; // queries that share a load of a key or value

struct Running { // of one query's online softmax
    float max, sum;
};

// Up to kQuads queries: heads of one row, or rows of one head.
struct Queries {
    int count;
    const float *q;
    int64_t ldq;
    float *o;
    int64_t ldo;
    Running *running;
    int visible[kQuads]; // keys in front of the last one that each sees, itself included
    int hidden[kQuads];  // and in front of the first one
};

// A tile of keys or values as floats.
struct KvTile {
    const float *rows;
    int64_t ld;
};

// Rows [key0, key0 + keys): f32 as they lie; others converted once for all queries.
inline KvTile load_tile(const AttentionHeads &h, const uint8_t *stored, int key0, int keys, float *out) {
    stored += key0 * h.ldkv;
    if (h.format == KvFormat::f32)
        return {reinterpret_cast<const float *>(stored), h.ldkv / 4};
    const int64_t ld = (h.head_dim + Vec::width - 1) / Vec::width * Vec::width;
    for (int j = 0; j < keys; ++j, stored += h.ldkv) {
        if (h.head_dim % Vec::width) { // vectors would read past the row
            load_kv(h.format, stored, h.head_dim, out + j * ld);
            continue;
        }
        float scale = 1;
        if (h.format == KvFormat::int8)
            __builtin_memcpy(&scale, stored, sizeof scale);
        for (int c = 0; c < h.head_dim; c += Vec::width) {
            const Vec::F value = h.format == KvFormat::int8
                                     ? Vec::load(reinterpret_cast<const int8_t *>(stored) + 4 + c) * Vec::set(scale)
                                     : Vec::load_half(stored + 2 * c);
            Vec::store(out + j * ld + c, value);
        }
    }
    return {out, ld};
}

inline void attend_tile(const AttentionHeads &h, KvTile k, KvTile v, int key0, int keys, const Queries &at) {
    float weights[kQuads][kKeys];
    int seen[kQuads], common = keys;
    gemm_rows(at.count, keys, h.head_dim, at.q, at.ldq, k.rows, k.ld, weights[0], kKeys);
    for (int r = 0; r < at.count; ++r) {
        seen[r] = at.visible[r] < key0 ? 0 : smaller(at.visible[r] - key0, keys);
        if (at.hidden[r] - key0 >= seen[r])
            seen[r] = 0;
        common = smaller(common, seen[r]);
        Running &running = at.running[r];
        const float old = running.max;
        for (int j = 0; j < kKeys; j += Vec::width)
            Vec::store(weights[r] + j, Vec::load(weights[r] + j) * Vec::set(h.scale));
        for (int j = 0; j < smaller(at.hidden[r] - key0, seen[r]); ++j)
            weights[r][j] = -__builtin_inff(); // a weight of 0, which changes no sum
        const float sum = exponentiate(weights[r], seen[r], kKeys, running.max);
        if (!seen[r])
            continue;
        const float rescale = exp(old - running.max);
        running.sum = running.sum * rescale + sum;
        if (rescale != 1.0f)
            for_vectors(h.head_dim, [&](int c, auto lanes) {
                float *o = at.o + r * at.ldo + c;
                Vec::store(o, Vec::load(o, lanes) * Vec::set(rescale), lanes);
            });
    }
    // What every query sees in one product, the rest one by one: none touches a later row's value.
    gemm(at.count, h.head_dim, common, {weights[0], kKeys, 1}, v.rows, v.ld, at.o, at.ldo, 1.0f);
    for (int r = 0; r < at.count; ++r)
        if (seen[r] > common)
            gemm(1, h.head_dim, seen[r] - common, {weights[r] + common, 0, 1}, v.rows + common * v.ld, v.ld,
                 at.o + r * at.ldo, at.ldo, 1.0f);
}

// Keys in front of the first one that a row sees.
inline int hidden_keys(const AttentionHeads &h, int row) {
    const int nearest = h.past + (h.causal ? h.first + row + 1 : 1);
    return h.window && nearest > h.window ? nearest - h.window : 0;
}

// body(queries) for all queries in fours: the heads of a row, or where there is but one, rows.
template <typename Body> inline void for_queries(const AttentionHeads &h, Running *running, Body body) {
    const auto visible = [&](int row) { return h.past + (h.causal ? h.first + row + 1 : h.seen); };
    const bool rows = h.heads == 1;
    const int outer = rows ? 1 : h.rows, inner = rows ? h.rows : h.heads;
    for (int i = 0; i < outer; ++i)
        for (int j = 0; j < inner; j += kQuads) {
            const int row = rows ? j : i, head = rows ? 0 : j;
            Queries at{};
            at.count = smaller(kQuads, inner - j);
            at.q = h.q + row * h.ldq + head * h.head_dim;
            at.ldq = rows ? h.ldq : h.head_dim;
            at.o = h.o + row * h.ldo + head * h.head_dim;
            at.ldo = rows ? h.ldo : h.head_dim;
            at.running = running + row * h.heads + head;
            for (int r = 0; r < at.count; ++r) {
                at.visible[r] = visible(rows ? row + r : row);
                at.hidden[r] = hidden_keys(h, rows ? row + r : row);
            }
            body(at);
        }
}

// Tiles outside, queries inside: every tile is read and converted once for all of them.
inline void attend(const AttentionHeads &h) {
    float *k = h.scratch, *v = k + kKeys * (h.head_dim + 16);
    Running *running = reinterpret_cast<Running *>(v + kKeys * (h.head_dim + 16));
    for (int i = 0; i < h.rows * h.heads; ++i)
        running[i] = {-__builtin_inff(), 0.0f};
    for (int r = 0; r < h.rows; ++r)
        for_vectors(h.heads * h.head_dim,
                    [&](int c, auto lanes) { Vec::store(h.o + r * h.ldo + c, Vec::zero(), lanes); });
    const int all = h.past + (h.causal ? h.first + h.rows : h.seen);
    for (int key0 = hidden_keys(h, 0) / kKeys * kKeys; key0 < all; key0 += kKeys) {
        const int keys = smaller(kKeys, all - key0);
        const KvTile key_tile = load_tile(h, h.k, key0, keys, k), value_tile = load_tile(h, h.v, key0, keys, v);
        for_queries(h, running, [&](const Queries &at) { attend_tile(h, key_tile, value_tile, key0, keys, at); });
    }
    for_queries(h, running, [&](const Queries &at) {
        for (int r = 0; r < at.count; ++r)
            for_vectors(h.head_dim, [&](int c, auto lanes) {
                float *o = at.o + r * at.ldo + c;
                Vec::store(o, Vec::load(o, lanes) * Vec::set(1.0f / at.running[r].sum), lanes);
            });
    });
}

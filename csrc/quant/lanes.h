// kLanes rows of a tile side by side. Included inside the anonymous namespace of a file that has defined kLanes; that
// file then defines
//     F root(F)                      square roots
//     F pick(const float (&)[16], I) table[index], index 0 .. 15
//     struct Search                  made from Levels; I code(F) counts the borders that a float reaches
// and includes coder.h.

typedef float F __attribute__((vector_size(4 * kLanes)));
typedef int32_t I __attribute__((vector_size(4 * kLanes)));

inline F load(const float *p) {
    F x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
inline void store(float *p, F x) { __builtin_memcpy(p, &x, sizeof x); }
inline F all(float x) { return x - F{}; }
inline I all(int32_t x) { return x - I{}; }
inline F smaller(F a, F b) { return a < b ? a : b; }
inline F larger(F a, F b) { return a > b ? a : b; }
inline I bits(F x) {
    I i;
    __builtin_memcpy(&i, &x, sizeof i);
    return i;
}
inline F magnitude(F x) {
    const I i = bits(x) & all(0x7fffffff);
    F y;
    __builtin_memcpy(&y, &i, sizeof y);
    return y;
}
inline bool any(I mask) {
    int32_t seen = 0;
    for (int i = 0; i < kLanes; ++i)
        seen |= mask[i];
    return seen != 0;
}

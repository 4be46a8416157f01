// The row of the kernel table that a vector instruction set fills. Included inside an anonymous namespace after
// simd_rows.h; operations that mix rows are compiled in a file of their own (mixers.h).
struct Mixers {
    void (*delta_commit)(const DeltaHead &);
    void (*delta_closed)(const DeltaHead &);
    void (*delta_preview)(const PreviewHead &);
    void (*attention)(const AttentionHeads &);
};

constexpr Kernels vector_table(const char *isa, const Mixers &m) {
    return {isa,
            {0, 0, Dot::byte_offset, 8, Dot::byte_offset, 4},
            quantize,
            matmul,
            reference::dequantize_row,
            rmsnorm,
            l2norm,
            silu_mul,
            gelu_mul,
            conv,
            m.delta_commit,
            m.delta_closed,
            m.delta_preview,
            gated_norm,
            m.attention,
            sigmoid_mul,
            head_stats,
            head_logits};
}

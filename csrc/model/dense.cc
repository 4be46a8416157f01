// The dense gated feed-forward, of width Id: y = down(act(gate(x)) * up(x)).
#include <algorithm>

#include "model/forward.h"

namespace clover {

void activate(const Model &m, const float *gate, const float *up, int64_t ld, int rows, int n, float *out) {
    const auto kernel = m.spec.activation == Activation::silu ? m.kernels.silu_mul : m.kernels.gelu_mul;
    kernel(gate, ld, up, ld, rows, n, out, ld);
}

void gate_row(Model &m, int64_t row, Forms forms) {
    Input &to = m.scratch.inner;
    const int width = to.width();
    const float *gate = m.scratch.gate_up.data() + row * 2 * width;
    activate(m, gate, gate + width, width, 1, width, to.row(row));
    to.quantize(m.kernels, forms, row);
}

void gated_feed_forward(Pass &p, const DenseWeights &w) {
    Scratch &s = p.model.scratch;
    s.inner.shape(w.down.k);
    p.multiply({{w.gate_up, s.x.activations(w.gate_up, 0, p.rows), nullptr, p.rows, s.gate_up.data(), w.gate_up.n}});
    p.model.pool.run(p.rows, [&](int64_t r, int) { gate_row(p.model, r, form_of(w.down)); });
    p.multiply({{w.down, s.inner.activations(w.down, 0, p.rows), nullptr, p.rows, p.y(), w.down.n}});
}

void dense_feed_forward(Pass &p, int layer) { gated_feed_forward(p, p.layer(layer).dense); }

// y <- post(dense(norm2(h))) + post(experts(expert_norm(h))), each with norms of its own
void dense_beside_experts(Pass &p, int layer) {
    Scratch &s = p.model.scratch;
    const LayerWeights &w = p.layer(layer);
    const int64_t width = p.model.spec.hidden_size;
    dense_feed_forward(p, layer);
    norm_output(p, w.dense_post_norm);
    std::copy_n(p.y(), p.rows * width, s.beside.data());
    sparse_experts(p, layer);
    norm_output(p, w.expert_post_norm);
    p.model.pool.run(p.rows, [&](int64_t r, int) {
        for (int64_t i = r * width; i < (r + 1) * width; i++)
            p.y()[i] += s.beside.data()[i];
    });
}

} // namespace clover

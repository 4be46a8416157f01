"""The Clover architecture in PyTorch, for training: a clean stream and a noisy stream in one pass.

The equations and the names of the parameters are those of the released checkpoints (a
`state_dict()` is a checkpoint), so nothing is renamed between training and export.

Shapes: B sequences, T clean rows (left-padded prompt, then the answer's NB blocks of W rows),
N = C * NB * W noisy rows (C noisy copies of the answer), H hidden. The noisy rows of block b see
the clean rows before that block and the noisy rows of their own block, nothing else.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Widths are multiples of 128 wherever a quantised matrix has its columns."""

    vocab_size: int = 1024
    hidden_size: int = 128
    layer_types: tuple[str, ...] = (
        "linear_attention",
        "full_attention",
        "linear_attention",
        "full_attention",
        "full_attention",
        "linear_attention",
    )
    num_attention_heads: int = 4
    num_key_value_heads: int = 1
    head_dim: int = 64
    partial_rotary_factor: float = 0.5
    rope_theta: float = 10000.0
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 32
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    rms_norm_eps: float = 1e-6
    block_size: int = 32

    def to_dict(self) -> dict:
        """The fields as they appear in `config.json`."""
        return {**asdict(self), "layer_types": list(self.layer_types)}


@dataclass
class Layout:
    """Where the rows of a batch stand: prompt width P (padded), NB blocks of W, C noisy copies."""

    prompt: int
    blocks: int
    width: int
    copies: int
    valid: Tensor  # [B, T] bool: False on the prompt's left padding
    mask: Tensor  # [B, 1, T + N, T + N]: 0 where a row sees a key, else -1e30
    cos: Tensor  # [T + N, rotary/2]
    sin: Tensor

    @property
    def clean(self) -> int:
        """T, the number of clean rows."""
        return self.prompt + self.blocks * self.width


def make_layout(
    cfg: Config, valid: Tensor, prompt: int, blocks: int, width: int, copies: int
) -> Layout:
    """Positions and visibility of both streams. `valid` is [B, T] bool."""
    t, n = valid.shape[1], copies * blocks * width
    pos = torch.cat([torch.arange(t), torch.arange(prompt, t).repeat(copies)])
    block = torch.cat([torch.full((t,), -1), torch.arange(n) // width])
    below = prompt + block % blocks * width  # a noisy row sees the clean keys before its block
    start = torch.where(block < 0, pos + 1, below)
    clean_key = torch.arange(t + n) < t
    sees_clean = clean_key[None, :] & (pos[None, :] < start[:, None])
    sees_block = ~clean_key[None, :] & (block[:, None] == block[None, :])
    key_valid = torch.cat([valid, torch.ones(valid.shape[0], n, dtype=torch.bool)], 1)
    mask = (sees_clean | sees_block)[None] & key_valid[:, None, :]
    mask = mask | torch.eye(t + n, dtype=torch.bool)[None]  # a padded row sees itself: no NaN
    half = int(cfg.head_dim * cfg.partial_rotary_factor) // 2
    inv = cfg.rope_theta ** (-torch.arange(half) / half)
    angle = pos[:, None] * inv[None]
    added = torch.zeros(mask.shape).masked_fill(~mask, -1e30)
    return Layout(prompt, blocks, width, copies, valid, added[:, None], angle.cos(), angle.sin())


class Norm(nn.Module):
    """RMSNorm with a zero-centred weight: x_hat * (1 + w)."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight + 1.0, self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Partial rotary embedding of x [B, heads, rows, head_dim]; pairs (i, i + rotary/2)."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Attention(nn.Module):
    """Gated grouped-query attention; q_proj holds, per head, query rows and then gate rows."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        h, d = cfg.hidden_size, cfg.head_dim
        self.q_proj = nn.Linear(h, cfg.num_attention_heads * 2 * d, bias=False)
        self.k_proj = nn.Linear(h, cfg.num_key_value_heads * d, bias=False)
        self.v_proj = nn.Linear(h, cfg.num_key_value_heads * d, bias=False)
        self.o_proj = nn.Linear(cfg.num_attention_heads * d, h, bias=False)
        self.q_norm, self.k_norm = Norm(d, cfg.rms_norm_eps), Norm(d, cfg.rms_norm_eps)

    def forward(self, x: Tensor, lay: Layout) -> Tensor:
        cfg, (b, rows, _) = self.cfg, x.shape
        nh, nkv, d = cfg.num_attention_heads, cfg.num_key_value_heads, cfg.head_dim
        q, gate = self.q_proj(x).view(b, rows, nh, 2 * d).chunk(2, -1)
        k = self.k_norm(self.k_proj(x).view(b, rows, nkv, d)).transpose(1, 2)
        v = self.v_proj(x).view(b, rows, nkv, d).transpose(1, 2)
        q = rotate(self.q_norm(q).transpose(1, 2), lay.cos, lay.sin)
        k = rotate(k, lay.cos, lay.sin)
        # Plain products: with so few keys they beat the fused kernel on a CPU by a third.
        scores = (q * d**-0.5).reshape(b, nkv, -1, d) @ k.transpose(-1, -2)
        p = (scores.view(b, nh, rows, rows) + lay.mask).softmax(-1)
        o = (p.view(b, nkv, -1, rows) @ v).view(b, nh, rows, d)
        o = o.transpose(1, 2) * torch.sigmoid(gate)
        return self.o_proj(o.reshape(b, rows, nh * d))


def l2norm(x: Tensor) -> Tensor:
    """x * rsqrt(sum x^2 + 1e-6) over the last axis."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunked_delta(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, s0: Tensor, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gated delta rule in its closed form, `chunk` rows at a time.

    q, k [B, h, n, dk], v [B, h, n, dv], g, beta [B, h, n], s0 [B, h, dk, dv], n a multiple of
    `chunk`. Returns o [B, h, n, dv], the state before each chunk [B, n/chunk, h, dk, dv] and the
    last state. All products are batched over chunks; only the hand-over of the state is a loop.
    """
    b, h, n, dk = q.shape
    dv, c = v.shape[-1], n // chunk
    q, k = q.view(b, h, c, chunk, dk), k.view(b, h, c, chunk, dk)
    v = v.view(b, h, c, chunk, dv)
    beta, cum = beta.view(b, h, c, chunk), g.view(b, h, c, chunk).cumsum(-1)
    low = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    diff = (cum[..., :, None] - cum[..., None, :]).masked_fill(~low, -1e30)
    decay = diff.exp()  # masked before exp: above the diagonal it would overflow
    eye = torch.eye(chunk)
    lower = (beta[..., None] * (k @ k.transpose(-1, -2)) * decay) * (1 - eye)
    rhs = torch.cat([v * beta[..., None], k * (beta * cum.exp())[..., None]], -1)
    uw = torch.linalg.solve_triangular(lower + eye, rhs, upper=False, unitriangular=True)
    u, w = uw[..., :dv], uw[..., dv:]
    inner = (q @ k.transpose(-1, -2)) * decay
    q_in = q * cum.exp()[..., None]
    k_out = (k * (cum[..., -1:] - cum).exp()[..., None]).transpose(-1, -2)
    last = cum[..., -1].exp()
    state, starts, outs = s0, [], []
    for i in range(c):
        starts.append(state)
        fresh = u[:, :, i] - w[:, :, i] @ state
        outs.append(q_in[:, :, i] @ state + inner[:, :, i] @ fresh)
        state = last[:, :, i, None, None] * state + k_out[:, :, i] @ fresh
    return torch.stack(outs, 2).reshape(b, h, n, dv), torch.stack(starts, 1), state


class GatedDeltaNet(nn.Module):
    """Commit form over the clean stream, preview form over the noisy blocks."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        h, hk, hv = cfg.hidden_size, cfg.linear_num_key_heads, cfg.linear_num_value_heads
        self.dk, self.dv = cfg.linear_key_head_dim, cfg.linear_value_head_dim
        channels = 2 * hk * self.dk + hv * self.dv
        self.in_proj_qkv = nn.Linear(h, channels, bias=False)
        self.in_proj_z = nn.Linear(h, hv * self.dv, bias=False)
        self.in_proj_b = nn.Linear(h, hv, bias=False)
        self.in_proj_a = nn.Linear(h, hv, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, 4, groups=channels, bias=False)
        self.out_proj = nn.Linear(hv * self.dv, h, bias=False)
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.dv))
        self.A_log = nn.Parameter(torch.log(torch.linspace(1.0, 8.0, hv)))
        dt = torch.exp(torch.linspace(math.log(0.005), math.log(0.1), hv))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.conv_right_weight = nn.Parameter(torch.randn(channels, 3) * 0.1)
        self.bd_softmax_logit_scale = nn.Parameter(torch.full((hv,), 4.0))
        self.bd_softmax_history_bias = nn.Parameter(torch.full((hv,), 2.0))
        self.bd_softmax_history_c = nn.Parameter(torch.zeros(hv))

    def split(self, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m [..., rows, channels] → normalised q, k and v, each [..., hv, rows, d]."""
        hk, hv = self.cfg.linear_num_key_heads, self.cfg.linear_num_value_heads
        q, k, v = m.split([hk * self.dk, hk * self.dk, hv * self.dv], -1)
        q, k = (l2norm(u.unflatten(-1, (hk, self.dk))).transpose(-2, -3) for u in (q, k))
        q, k = (u.repeat_interleave(hv // hk, -3) for u in (q, k))
        return q, k, v.unflatten(-1, (hv, self.dv)).transpose(-2, -3)

    def commit(self, m: Tensor, x: Tensor, lay: Layout) -> tuple[Tensor, Tensor]:
        """Clean rows m [B, T, channels], x [B, T, H] → o [B, T, hv, dv], block-start states."""
        pad = F.pad(m, (0, 0, 3, 0)).transpose(1, 2)
        conv = F.conv1d(pad, self.conv1d.weight, groups=m.shape[-1])
        q, k, v = self.split(F.silu(conv).transpose(1, 2))
        live = lay.valid[..., None]
        beta = (torch.sigmoid(self.in_proj_b(x)) * live).transpose(1, 2)
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)
        g = (g * live).transpose(1, 2)
        parts = (q * self.dk**-0.5, k, v, g, beta)
        s = torch.zeros(x.shape[0], q.shape[1], self.dk, self.dv)
        p = lay.prompt
        o1, _, s = chunked_delta(*(u[:, :, :p].contiguous() for u in parts), s, 16)
        o2, starts, _ = chunked_delta(*(u[:, :, p:].contiguous() for u in parts), s, lay.width)
        return torch.cat([o1, o2], 2).transpose(1, 2), starts

    def preview(self, m: Tensor, clean: Tensor, starts: Tensor, lay: Layout) -> Tensor:
        """Noisy rows m [B, N, channels] → o [B, N, hv, dv]; the state is only read."""
        b, n, _ = m.shape
        w, nb = lay.width, lay.blocks * lay.copies
        first = lay.prompt + torch.arange(lay.blocks).repeat(lay.copies) * w
        index = first[:, None] + torch.arange(-3, 0)
        block = torch.cat([clean[:, index], m.view(b, nb, w, -1)], 2)  # ring, then the block
        full = F.pad(block, (0, 0, 0, 3)).flatten(0, 1).transpose(1, 2)
        taps = torch.cat([self.conv1d.weight, self.conv_right_weight[:, None]], -1)
        mixed = F.silu(F.conv1d(full, taps, groups=m.shape[-1])).transpose(1, 2)
        q, k, v = self.split(mixed.unflatten(0, (b, nb)))  # [B, NB, hv, W, d]
        logits = (q @ k.transpose(-1, -2)) * self.bd_softmax_logit_scale[:, None, None]
        history = self.bd_softmax_history_bias + self.bd_softmax_history_c * math.log(w / 32)
        history = history[:, None, None].expand(b, nb, -1, w, 1)
        p = torch.softmax(torch.cat([logits, history], -1), -1)
        starts = starts.repeat(1, lay.copies, 1, 1, 1)
        o = p[..., :w] @ v + p[..., w:] * ((q * self.dk**-0.5) @ starts)
        return o.transpose(2, 3).reshape(b, n, -1, self.dv)

    def forward(self, x: Tensor, lay: Layout) -> Tensor:
        t = lay.clean
        m = self.in_proj_qkv(x)
        o, starts = self.commit(m[:, :t], x[:, :t], lay)
        if x.shape[1] > t:
            o = torch.cat([o, self.preview(m[:, t:], m[:, :t], starts, lay)], 1)
        z = self.in_proj_z(x).view_as(o)
        o = F.rms_norm(o, o.shape[-1:], self.norm.weight, self.cfg.rms_norm_eps) * F.silu(z)
        return self.out_proj(o.flatten(-2))


class Experts(nn.Module):
    """Stacked weights of all experts; gate rows first in `gate_up_proj`."""

    def __init__(self, cfg: Config):
        super().__init__()
        e, i, h = cfg.num_experts, cfg.moe_intermediate_size, cfg.hidden_size
        self.gate_up_proj = nn.Parameter(torch.randn(e, 2 * i, h) * h**-0.5)
        self.down_proj = nn.Parameter(torch.randn(e, h, i) * i**-0.5)


class SharedExpert(nn.Module):
    """The expert that every row uses."""

    def __init__(self, cfg: Config):
        super().__init__()
        i, h = cfg.shared_expert_intermediate_size, cfg.hidden_size
        self.gate_proj = nn.Linear(h, i, bias=False)
        self.up_proj = nn.Linear(h, i, bias=False)
        self.down_proj = nn.Linear(i, h, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseFeedForward(nn.Module):
    """Softmax router, top-k renormalised, SwiGLU experts, shared expert behind a sigmoid gate."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.top_k = cfg.num_experts_per_tok
        self.gate = nn.Linear(cfg.hidden_size, cfg.num_experts, bias=False)
        self.experts = Experts(cfg)
        self.shared_expert = SharedExpert(cfg)
        self.shared_expert_gate = nn.Linear(cfg.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        probs = self.gate(flat).softmax(-1)
        weight, chosen = probs.topk(self.top_k, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).reshape(-1)
        order = chosen.reshape(-1).argsort(stable=True)
        counts = torch.bincount(chosen.reshape(-1), minlength=probs.shape[1])
        rows = order // self.top_k
        gathered = flat.index_select(0, rows)
        # unbind, not indexing: its gradient is one stack instead of E zero-filled tensors
        experts = self.experts
        weights = zip(experts.gate_up_proj.unbind(0), experts.down_proj.unbind(0), strict=True)
        outs = []
        for part, (gate_up, down) in zip(gathered.split(counts.tolist()), weights, strict=True):
            gate, up = (part @ gate_up.T).chunk(2, -1)
            outs.append((F.silu(gate) * up) @ down.T)
        mixed = torch.cat(outs) * weight.index_select(0, order)[:, None]
        out = torch.zeros_like(flat).index_add(0, rows, mixed)
        out = out + torch.sigmoid(self.shared_expert_gate(flat)) * self.shared_expert(flat)
        balance = (probs.mean(0) * counts / counts.sum()).sum() * probs.shape[1]
        return out.view_as(x), balance


class Layer(nn.Module):
    """x += mixer(norm(x)); x += feed-forward(norm(x))."""

    def __init__(self, cfg: Config, kind: str):
        super().__init__()
        self.input_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.post_attention_layernorm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        if kind == "full_attention":
            self.self_attn = Attention(cfg)
        else:
            self.linear_attn = GatedDeltaNet(cfg)
        self.mixer_name = "self_attn" if kind == "full_attention" else "linear_attn"
        self.mlp = SparseFeedForward(cfg)

    def forward(self, x: Tensor, lay: Layout) -> tuple[Tensor, Tensor]:
        x = x + getattr(self, self.mixer_name)(self.input_layernorm(x), lay)
        y, balance = self.mlp(self.post_attention_layernorm(x))
        return x + y, balance


class Trunk(nn.Module):
    """Embedding, layers and the last norm, under the checkpoint's prefix `model.`."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.layers = nn.ModuleList(Layer(cfg, kind) for kind in cfg.layer_types)
        self.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)


class Clover(nn.Module):
    """The whole model over both streams."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.model = Trunk(cfg)
        self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)
        scale = (2 * len(cfg.layer_types)) ** -0.5
        for name, p in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
                p.data.mul_(scale)  # residual branches start small in proportion to depth
        nn.init.normal_(self.model.embed_tokens.weight, std=0.5)
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def forward(self, clean: Tensor, noisy: Tensor, lay: Layout) -> tuple[Tensor, Tensor]:
        """clean [B, T], noisy [B, N] token ids → rows before the head [B, T + N, H], balance."""
        x = self.model.embed_tokens(torch.cat([clean, noisy], 1))
        balance = x.new_zeros(())
        for layer in self.model.layers:
            x, b = layer(x, lay)
            balance = balance + b
        return self.model.norm(x), balance / len(self.model.layers)

"""A tiny random model straight for the core: one raw f32 file, its table, its spec; no export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clover_edge import _core

H, V, E, I = 48, 160, 8, 32  # noqa: E741 - hidden, vocabulary, experts, their width
NH, NKV, HD = 4, 2, 16  # attention heads, KV heads, their width
HK, HV, DK, DV, TAPS = 2, 4, 16, 24, 4  # DeltaNet heads and widths, convolution taps
C = 2 * HK * DK + HV * DV
MASK = 150
VALID = 152
LAYERS = ("deltanet", "attention", "deltanet")

SPEC: dict[str, Any] = {
    "vocab_size": V,
    "valid_vocab": VALID,
    "hidden_size": H,
    "num_layers": len(LAYERS),
    "rms_eps": 1e-6,
    "norm_offset": 1.0,
    "layer_types": list(LAYERS),
    "num_heads": NH,
    "num_kv_heads": NKV,
    "head_dim": HD,
    "rotary_dim": 8,
    "rope_theta": 1e4,
    "attn_output_gate": True,
    "attn_scale": HD**-0.5,
    "delta_k_heads": HK,
    "delta_v_heads": HV,
    "delta_k_dim": DK,
    "delta_v_dim": DV,
    "conv_taps": TAPS,
    "num_experts": E,
    "top_k": 2,
    "expert_intermediate": I,
    "shared_intermediate": 32,
    "router": "softmax",
    "norm_topk": True,
    "tie_embeddings": False,
    "max_positions": 1 << 20,
    "mask_token_id": MASK,
    "block_size": 16,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor but the experts."""
    out: dict[str, tuple[int, ...]] = {"embed": (V, H), "head": (V, H), "final_norm": (H,)}
    for i, kind in enumerate(LAYERS):
        layer: dict[str, tuple[int, ...]] = {"norm1": (H,), "norm2": (H,), "router": (E, H)}
        layer |= {"shared.gate_up": (64, H), "shared.down": (H, 32), "shared_gate": (1, H)}
        if kind == "attention":
            layer |= {"attn.in": (2 * NH * HD + 2 * NKV * HD, H), "attn.out": (H, NH * HD)}
            layer |= {"attn.q_norm": (HD,), "attn.k_norm": (HD,)}
        else:
            layer |= {"delta.in": (C + HV * DV, H), "delta.ba": (2 * HV, H)}
            layer |= {"delta.conv": (C, TAPS), "delta.conv_right": (C, TAPS - 1)}
            layer |= {"delta.norm": (DV,), "delta.out": (H, HV * DV)}
            heads = ("A_log", "dt_bias", "logit_scale", "history_bias", "history_c")
            layer |= {f"delta.{name}": (HV,) for name in heads}
        out |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return out


@dataclass
class TinyFile:
    """A raw file of weights and the table that describes it."""

    path: Path
    table: list[dict[str, Any]]

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.table if row["name"] == name)

    def write(self, name: str, values: np.ndarray) -> None:
        """Overwrites a tensor from its first value on."""
        with self.path.open("r+b") as file:
            file.seek(self.row(name)["offset"])
            file.write(values.astype("<f4").tobytes())

    def open(self, *, spec: dict[str, Any] | None = None, **options: Any) -> Any:
        options = {"threads": 1, **options}
        return _core.Model({**SPEC, **(spec or {})}, [str(self.path)], self.table, **options)


def write_tiny(path: Path, seed: int = 0, head_scale: float = 1.5) -> TinyFile:
    """`head_scale` sharpens the logits: thresholds then matter, and texts vary."""
    rng = np.random.default_rng(seed)
    data = bytearray()
    table: list[dict[str, Any]] = []

    def add(name: str, shape: tuple[int, ...], values: np.ndarray, **place: int) -> None:
        data.extend(b"\0" * (-len(data) % 64))
        row = {"name": name, "scheme": "f32", "shape": list(shape), "group": 0, "file": 0}
        table.append({**row, "offset": len(data), "bytes": values.nbytes, "stride": 0, **place})
        data.extend(values.tobytes())

    for name, shape in shapes().items():
        spread = 0.3 if len(shape) == 1 else shape[-1] ** -0.5
        values = rng.normal(0, spread, shape)
        if name.endswith("delta.norm"):
            values += 1
        if name == "head":
            values *= head_scale
        add(name, shape, values.astype("<f4"))
    for i in range(len(LAYERS)):
        records = rng.normal(0, H**-0.5, (E, 3, I * H)).astype("<f4")
        start = len(data) + -len(data) % 64
        add(f"layers.{i}.experts.gate", (E, I, H), records)
        table.pop()
        part = I * H * 4
        for n, (name, shape) in enumerate({"gate": (I, H), "up": (I, H), "down": (H, I)}.items()):
            row = {"name": f"layers.{i}.experts.{name}", "scheme": "f32", "shape": [E, *shape]}
            place = {"offset": start + n * part, "bytes": part, "stride": 3 * part}
            table.append({**row, "group": 0, "file": 0, **place})
    path.write_bytes(bytes(data))
    return TinyFile(path, table)


def tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, MASK, n).tolist()


def committed(core: Any, *pieces: list[int], capacity: int = 600, **options: Any) -> Any:
    """A new state behind the pieces."""
    state = core.new_state(capacity)
    for piece in pieces:
        core.commit(state, piece, logits="none", **options)
    return state


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Bitwise."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert np.array_equal(value, b[name]), name


def same_from_now(core: Any, one: Any, other: Any, ids: list[int]) -> None:
    """Two states, bitwise, as they are and behind further ``ids``."""
    for _ in range(2):
        same(one.arrays(), other.arrays())
        core.commit(one, ids, logits="none")
        core.commit(other, ids, logits="none")

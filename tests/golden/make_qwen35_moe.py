"""Makes ``qwen35_moe_commit.npz``: what `transformers` computes for a tiny Qwen3.5-MoE.

    python tests/golden/make_qwen35_moe.py        # needs the `judge` extra: torch, transformers

The commit mode of Clover is the Qwen3.5-MoE trunk. The file keeps the ids, the logits of
``Qwen3_5MoeForCausalLM`` in float32 and what makes the weights again (``tiny_clover.py``, a seed),
with a checksum that says whether it still does. 72 tokens cross the chunk of 64 that its delta rule
works in; the second pass feeds the same ids in pieces through its cache.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

MAKER = {"seed": 35, "layers": 8, "dtype": "f32", "vocab": 304, "top_k": 4}
PIECES = (31, 1, 1, 32, 7)  # how the second pass cuts the ids


def weights() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors by checkpoint name without prefix, parsed ``config.json``) of the tiny model."""
    from golden_files import drawn
    from tiny_clover import make_checkpoint

    return drawn(make_checkpoint, **MAKER)


def token_ids() -> np.ndarray:
    return np.random.default_rng(MAKER["seed"]).integers(0, 256, sum(PIECES))


def transformers_logits(
    tensors: dict[str, np.ndarray], config: dict[str, Any], ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, V] of one pass, and of the passes cut into ``PIECES`` through the cache."""
    import torch
    from torch_models import load_trunk
    from transformers import DynamicCache
    from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    text = {key: value for key, value in config.items() if key not in ("architectures", "dtype")}
    model = Qwen3_5MoeForCausalLM(
        Qwen3_5MoeTextConfig(**{**text, "model_type": "qwen3_5_moe_text"})
    )
    previews = ("bd_softmax", "conv_right")
    trunk = {k: v for k, v in tensors.items() if not any(part in k for part in previews)}
    model = load_trunk(model, trunk)
    rows = torch.from_numpy(ids)[None]
    with torch.no_grad():
        whole = model(input_ids=rows, use_cache=False).logits[0]
        named = inspect.signature(model.forward).parameters
        cache = {
            "cache" if "cache" in named else "past_key_values": DynamicCache(config=model.config)
        }
        pieces = [
            model(input_ids=piece, use_cache=True, **cache).logits[0]
            for piece in torch.split(rows, list(PIECES), dim=1)
        ]
    return whole.numpy(), torch.cat(pieces).numpy()


def main() -> None:
    from golden_files import checksum, save, versions

    tensors, config = weights()
    ids = token_ids()
    whole, pieces = transformers_logits(tensors, config, ids)
    print("one pass against pieces:", np.abs(whole - pieces).max() / np.abs(whole).max())
    made = {"ids": ids.astype(np.int32), "logits": whole, "maker": json.dumps(MAKER)}
    save("qwen35_moe_commit", {**made, "checksum": checksum(tensors), "made_with": versions()})


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

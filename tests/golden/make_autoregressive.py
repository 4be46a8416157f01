"""Makes ``autoregressive.npz``: what `transformers` computes for tiny Qwen3.5, Qwen3.5-MoE,
Qwen3-Next and Gemma 3.

    python tests/golden/make_autoregressive.py        # needs the `judge` extra: torch, transformers

For every case the file keeps the logits of some rows in float32, the text that a plain greedy loop
over the same model writes, how close its closest decision was, and a checksum of the weights, which
``tiny_hybrid.py`` and ``tiny_gemma.py`` draw again from the seed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GOLDEN = HERE / "autoregressive.npz"
LENGTH, ROWS = 72, (0, 1, 31, 63, 64, 70, 71)  # past the chunk of 64 of the official delta rule
PROMPT, NEW, VALID = 20, 48, 288  # tokens of the prompt and of the text, real ids
LINEAR = {"rope_type": "linear", "factor": 8.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_5": ("qwen3_5", {"nested": True}),
    "qwen3_5, tied": ("qwen3_5", {"tie_word_embeddings": True}),
    "qwen3_5_moe": ("qwen3_5_moe", {"nested": True, "linear_num_value_heads": 6}),
    "qwen3_next": ("qwen3_next", {"linear_num_value_heads": 6, "linear_value_head_dim": 24}),
    "qwen3_next, a dense layer": ("qwen3_next", {"mlp_only_layers": [1], "norm_topk_prob": False}),
    "gemma3": ("gemma3", {}),
    "gemma3, stretched": (
        "gemma3",
        {"rope_scaling": LINEAR, "sliding_window": 1, "hidden_size": 64},
    ),
}
_CLASSES = {
    "qwen3_5": ("qwen3_5", "Qwen3_5ForCausalLM", "Qwen3_5TextConfig"),
    "qwen3_5_moe": ("qwen3_5_moe", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig"),
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM", "Qwen3NextConfig"),
    "gemma3": ("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig"),
}


def options(case: str) -> tuple[str, dict[str, Any]]:
    """Family, and arguments of its maker."""
    family, config = CASES[case]
    return family, {"seed": 1 + list(CASES).index(case), "dtype": "f32", **config}


def weights(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors by checkpoint name without prefix, text configuration) of a case."""
    family, rest = options(case)
    with tempfile.TemporaryDirectory() as folder:
        tensors = make(folder, family, **rest)
        config = json.loads((Path(folder) / "config.json").read_text())
    return tensors, config.get("text_config", config)


def make(folder: str | Path, family: str, **rest: Any) -> dict[str, np.ndarray]:
    """Writes a checkpoint of the family; its tensors."""
    from tiny_gemma import make_gemma
    from tiny_hybrid import make_hybrid

    return make_gemma(folder, **rest) if family == "gemma3" else make_hybrid(folder, family, **rest)


def checksum(tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name], dtype="<f4")
        digest.update(f"{name} {value.shape}\n".encode() + value.tobytes())
    return digest.hexdigest()


def token_ids() -> np.ndarray:
    return np.random.default_rng(8).integers(0, 256, LENGTH)


def official(case: str) -> Any:
    """The case as a module of `transformers`."""
    from importlib import import_module

    import torch
    from tiny_hybrid import fused_inputs

    tensors, config = weights(case)
    family, _ = CASES[case]
    module, model_class, config_class = _CLASSES[family]
    home = import_module(f"transformers.models.{module}")
    keys = {k: v for k, v in config.items() if k not in ("architectures", "dtype", "model_type")}
    model = getattr(home, model_class)(getattr(home, config_class)(**keys))
    model = model.to(torch.float32).eval()
    named = fused_inputs(tensors, config) if family == "qwen3_next" else tensors
    state = {
        name if name.startswith("lm_head") else "model." + name: torch.from_numpy(value)
        for name, value in named.items()
    }
    missing, surplus = model.load_state_dict(state, strict=False)
    tied = ["lm_head.weight"] if config["tie_word_embeddings"] else []
    assert (list(missing), list(surplus)) == (tied, []), (missing, surplus)
    return model


def transformers_logits(model: Any, ids: np.ndarray) -> np.ndarray:
    """Logits [n, V] of one pass."""
    import torch

    with torch.no_grad():
        rows = torch.from_numpy(ids)[None]
        logits: np.ndarray = model(input_ids=rows, use_cache=False).logits[0].numpy()
    return logits


def greedy(model: Any, ids: np.ndarray) -> tuple[np.ndarray, float]:
    """``NEW`` tokens behind ``ids``, and the least distance of a logit to the next best one."""
    margin = np.inf
    for _ in range(NEW):
        last = transformers_logits(model, ids)[-1, :VALID]
        best, second = np.sort(last)[::-1][:2]
        margin = min(margin, float(best - second))
        ids = np.append(ids, last.argmax())
    return ids[PROMPT:], margin


def main() -> None:
    import torch
    import transformers

    made: dict[str, Any] = {}
    for case in CASES:
        model = official(case)
        made[f"{case}: logits"] = transformers_logits(model, token_ids())[list(ROWS)]
        text, margin = greedy(model, token_ids()[:PROMPT])
        made[f"{case}: text"], made[f"{case}: margin"] = text.astype(np.int32), margin
        made[f"{case}: checksum"] = checksum(weights(case)[0])
        print(case, len(set(text.tolist())), "ids,", "margin", margin)
    made["made_with"] = f"transformers {transformers.__version__}, torch {torch.__version__}"
    np.savez_compressed(GOLDEN, **made)
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()

"""Makes ``autoregressive.npz``: what `transformers` computes for tiny Qwen3.5, Qwen3.5-MoE,
Qwen3-Next and Gemma 3.

    python tests/golden/make_autoregressive.py        # needs the `judge` extra: torch, transformers

For every case the file keeps the logits of some rows in float32, the text that a plain greedy loop
over the same model writes, how close its closest decision was, and a checksum of the weights, which
``tiny_hybrid.py`` and ``tiny_gemma.py`` draw again from the seed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

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
    from golden_files import drawn

    family, rest = options(case)
    tensors, config = drawn(make, family, **rest)
    return tensors, config.get("text_config", config)


def make(folder: str | Path, family: str, **rest: Any) -> dict[str, np.ndarray]:
    """Writes a checkpoint of the family; its tensors."""
    from tiny_gemma import make_gemma
    from tiny_hybrid import make_hybrid

    return make_gemma(folder, **rest) if family == "gemma3" else make_hybrid(folder, family, **rest)


def token_ids() -> np.ndarray:
    return np.random.default_rng(8).integers(0, 256, LENGTH)


def official(case: str) -> Any:
    """The case as a module of `transformers`."""
    from importlib import import_module

    from tiny_hybrid import fused_inputs
    from torch_models import load_trunk

    tensors, config = weights(case)
    family, _ = CASES[case]
    module, model_class, config_class = _CLASSES[family]
    home = import_module(f"transformers.models.{module}")
    keys = {k: v for k, v in config.items() if k not in ("architectures", "dtype", "model_type")}
    model = getattr(home, model_class)(getattr(home, config_class)(**keys))
    named = fused_inputs(tensors, config) if family == "qwen3_next" else tensors
    return load_trunk(model, named, tied=config["tie_word_embeddings"])


def greedy(model: Any, ids: np.ndarray) -> tuple[np.ndarray, float]:
    """``NEW`` tokens behind ``ids``, and the least distance of a logit to the next best one."""
    from torch_models import logits_of

    margin = np.inf
    for _ in range(NEW):
        last = logits_of(model, ids)[-1, :VALID]
        best, second = np.sort(last)[::-1][:2]
        margin = min(margin, float(best - second))
        ids = np.append(ids, last.argmax())
    return ids[PROMPT:], margin


def main() -> None:
    from golden_files import checksum, save, versions
    from torch_models import logits_of

    made: dict[str, Any] = {}
    for case in CASES:
        model = official(case)
        made[f"{case}: logits"] = logits_of(model, token_ids())[list(ROWS)]
        text, margin = greedy(model, token_ids()[:PROMPT])
        made[f"{case}: text"], made[f"{case}: margin"] = text.astype(np.int32), margin
        made[f"{case}: checksum"] = checksum(weights(case)[0])
        print(case, len(set(text.tolist())), "ids,", "margin", margin)
    made["made_with"] = versions()
    save("autoregressive", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

"""Makes ``transformers.npz``: what `transformers` computes for tiny Llama, Qwen2, Qwen3, Qwen3-MoE.

    python tests/golden/make_transformers.py        # needs the `judge` extra: torch, transformers

For every case the file keeps the logits of some rows in float32 and a checksum of the weights,
which ``tiny_transformer.py`` draws again from the seed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS = 40, (0, 1, 7, 23, 38, 39)  # tokens, and those whose logits are kept
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"type": "linear", "factor": 2.5}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_theta": 500_000.0, "rope_scaling": LLAMA3}),
    "llama, biases, tied": (
        "llama",
        {"attention_bias": True, "tie_word_embeddings": True, "rope_scaling": LINEAR},
    ),
    "qwen2": ("qwen2", {"rope_scaling": YARN}),
    "qwen3": ("qwen3", {"rope_theta": 1e6}),
    "qwen3_moe": ("qwen3_moe", {"mlp_only_layers": [1]}),
    "qwen3_moe, plain weights": ("qwen3_moe", {"norm_topk_prob": False, "decoder_sparse_step": 2}),
}


def options(case: str) -> tuple[str, dict[str, Any]]:
    """Arguments of ``make_transformer``."""
    family, config = CASES[case]
    return family, {"seed": 1 + list(CASES).index(case), "dtype": "f32", **config}


def weights(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors by checkpoint name without prefix, parsed ``config.json``) of a case."""
    from golden_files import drawn
    from tiny_transformer import make_transformer

    family, rest = options(case)
    return drawn(make_transformer, family, **rest)


def token_ids() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, LENGTH)


def official(case: str) -> Any:
    """The case as a module of `transformers`, of the class that the configuration names."""
    import transformers
    from torch_models import load_trunk

    tensors, config = weights(case)
    kind = getattr(transformers, config["architectures"][0])
    model = kind(kind.config_class(**config, attn_implementation="eager"))
    return load_trunk(model, tensors, tied=config["tie_word_embeddings"])


def main() -> None:
    from golden_files import checksum, save, versions
    from torch_models import logits_of

    made: dict[str, Any] = {}
    for case in CASES:
        made[f"{case}: logits"] = logits_of(official(case), token_ids())[list(ROWS)]
        made[f"{case}: checksum"] = checksum(weights(case)[0])
    made["made_with"] = versions()
    save("transformers", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

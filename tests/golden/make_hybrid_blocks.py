"""Makes ``hybrid_blocks.npz``: what `transformers` computes for tiny conversions of Qwen3.5, dense
and with experts, to block diffusion.

    python tests/golden/make_hybrid_blocks.py     # needs the `judge` extra: torch, transformers

The judge is Qwen3.5 itself: its attention layers get a block mask, or a causal one with a last
block that sees itself as a whole, its DeltaNet layers stay as they are. For every case the file
keeps logits of some rows in float32, a whole greedy generation (``oracle/blocks.py``'s loop over
the judge, nothing cached) and a checksum of the weights, which are drawn again from the seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS = 48, (0, 1, 7, 23, 30, 47)  # tokens, and those whose logits are kept
PROMPT, WIDTH = 19, 8
# family, arguments of make_hybrid, options of the generation
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a2d_qwen3_5": ("a2d_qwen3_5", {}, {"threshold": 0.2}),
    "a2d_qwen3_5, one a step": ("a2d_qwen3_5", {"nested": True}, {"threshold": 1.0}),
    "a2d_qwen3_5_moe": ("a2d_qwen3_5_moe", {}, {"threshold": 0.2}),
    "causal commits": ("a2d_qwen3_5", {}, {"threshold": 0.2, "causal": True}),
}
SEEDS = {case: 3 if "one a step" in case else 5 for case in CASES}


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_hybrid``."""
    return {"seed": SEEDS[case], "dtype": "f32", **CASES[case][1]}


def tensors_of(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors by checkpoint name without prefix, text configuration) of a case."""
    from golden_files import drawn
    from tiny_hybrid import make_hybrid

    tensors, config = drawn(make_hybrid, CASES[case][0], **arguments(case))
    return tensors, {**config, **config.get("text_config", {})}


def options_of(case: str, config: dict[str, Any]) -> Any:
    from oracle.blocks import BlockOptions

    return BlockOptions(
        max_new_tokens=3 * WIDTH,
        mask=config["mask_token_id"],
        valid_vocab=config["mask_token_id"] + 1,
        width=WIDTH,
        absolute=False,
        **CASES[case][2],
    )


def token_ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(0, 256, LENGTH)]


def transformers_judge(
    tensors: dict[str, np.ndarray], config: dict[str, Any], causal: bool
) -> Callable[[Sequence[int], int], np.ndarray]:
    """Ids and the blocks' origin, or with ``causal`` the last block's start, to logits [n, V]."""
    from oracle.blocks import block_mask
    from oracle.hybrid_blocks import last_block_mask
    from torch_models import additive_mask, load_trunk, logits_of

    model = load_trunk(_model(config), tensors)

    def logits(ids: Sequence[int], origin: int = 0) -> np.ndarray:
        n = len(ids)
        visible = last_block_mask(n, origin) if causal else block_mask(n, WIDTH, origin)
        masks = {"full_attention": additive_mask(visible), "linear_attention": None}
        return logits_of(model, ids, masks)

    return logits


def _model(config: dict[str, Any]) -> Any:
    from importlib import import_module

    sparse = "num_experts" in config
    module = "qwen3_5_moe" if sparse else "qwen3_5"
    name = "Qwen3_5Moe" if sparse else "Qwen3_5"
    home = import_module(f"transformers.models.{module}")
    dropped = ("architectures", "dtype", "model_type", "text_config")
    keys = {k: v for k, v in config.items() if k not in dropped}
    settings = getattr(home, name + "TextConfig")(**keys, attn_implementation="eager")
    return getattr(home, name + "ForCausalLM")(settings)


def main() -> None:
    from golden_files import checksum, save, text_arrays, versions
    from oracle.blocks import generate_blocks

    made: dict[str, Any] = {}
    for case in CASES:
        tensors, config = tensors_of(case)
        options = options_of(case, config)
        judge = transformers_judge(tensors, config, options.causal)
        made[f"{case}: logits"] = judge(token_ids(), LENGTH - WIDTH)[list(ROWS)]
        made |= text_arrays(case, generate_blocks(judge, token_ids()[:PROMPT], options))
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = versions()
    save("hybrid_blocks", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

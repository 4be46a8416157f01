"""Makes ``nemotron.npz``: what `transformers` computes for tiny Nemotron-Labs-Diffusion models.

    python tests/golden/make_nemotron.py          # needs the `judge` extra: torch, transformers

The judge is Ministral 3, whose layers these are: causal, or with a last block that sees itself as a
whole. For every case the file keeps logits of some rows in float32, a whole greedy generation by
diffusion (``oracle/blocks.py``'s loop over the judge, nothing cached), an autoregressive one, and a
checksum of the weights, which are drawn again from the seed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS = 48, (0, 1, 15, 16, 39, 40, 47)  # tokens, and those whose logits are kept
PROMPT, WIDTH, NEW = 19, 8, 24
# arguments of make_nemotron, options of the generation
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stretched": ({}, {"threshold": 0.5}),
    "a factor below 1": ({"rope": {"factor": 0.25}}, {"threshold": 0.5}),
    "one a step": ({"rope": {"mscale_all_dim": 0.5}}, {"threshold": 1.0}),
}
SEEDS = {"stretched": 7, "a factor below 1": 8, "one a step": 1}


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_nemotron``."""
    return {"seed": SEEDS[case], "dtype": "f32", **CASES[case][0]}


def tensors_of(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors by Llama's names without prefix, configuration) of a case."""
    from golden_files import drawn
    from tiny_nemotron import make_nemotron

    return drawn(make_nemotron, **arguments(case))


def options_of(case: str, config: dict[str, Any], **other: Any) -> Any:
    from oracle.blocks import BlockOptions

    return BlockOptions(
        max_new_tokens=NEW,
        mask=config["mask_token_id"],
        valid_vocab=config["mask_token_id"] + 1,
        absolute=False,
        causal=True,
        **{"width": WIDTH, "seed": True, **CASES[case][1], **other},
    )


def token_ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(0, 256, LENGTH)]


def transformers_judge(
    tensors: dict[str, np.ndarray], config: dict[str, Any]
) -> Callable[[Sequence[int], int], np.ndarray]:
    """Ids and the last block's start to logits [n, V]."""
    from oracle.hybrid_blocks import last_block_mask
    from torch_models import additive_mask, load_trunk, logits_of
    from transformers import Ministral3Config, Ministral3ForCausalLM

    dropped = ("architectures", "dtype", "model_type", "attention_bias", "mlp_bias")
    keys = {k: v for k, v in config.items() if k not in dropped}
    settings = Ministral3Config(**keys, attn_implementation="eager")
    model = load_trunk(Ministral3ForCausalLM(settings), tensors)

    def logits(ids: Sequence[int], start: int) -> np.ndarray:
        return logits_of(model, ids, additive_mask(last_block_mask(len(ids), start)))

    return logits


def main() -> None:
    from golden_files import assert_clear, checksum, save, versions
    from oracle.blocks import generate_blocks

    made: dict[str, Any] = {}
    for case in CASES:
        tensors, config = tensors_of(case)
        judge = transformers_judge(tensors, config)
        made[f"{case}: logits"] = judge(token_ids(), LENGTH - WIDTH)[list(ROWS)]
        for mode, other in (("diffusion", {}), ("ar", {"width": 1})):
            text = generate_blocks(judge, token_ids()[:PROMPT], options_of(case, config, **other))
            print(f"{case}, {mode}: {text.ids}, {len(text.changed)}, margin {text.margin:.1e}")
            assert_clear(case, text.margin)
            made[f"{case}: {mode}"] = text.ids
            made[f"{case}: {mode} changed"] = json.dumps(text.changed)
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = versions()
    save("nemotron", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

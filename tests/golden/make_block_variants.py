"""Makes ``block_variants.npz``: further trunks and further ways to decode under a block mask.

    python tests/golden/make_block_variants.py     # needs the `judge` extra: torch, transformers

Trunks: A2D of Llama and Qwen2, Stable-DiffCoder. Decoding: SDAR's strategies and Fast-dLLM's
factor. What the file keeps, and the judge, are those of ``make_blocks.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

# family, arguments of make_blocks, options of the generation
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a2d_llama": ("a2d_llama", {"seed": 2}, {"threshold": 1.0, "absolute": False}),
    "a2d_qwen2": ("a2d_qwen2", {"seed": 4}, {"threshold": 0.4, "absolute": False}),
    "diffcoder": ("diffcoder", {"seed": 6}, {"threshold": 0.5}),
    "sequential": ("sdar", {"seed": 6, "block_size": 8}, {"strategy": "sequential", "steps": 3}),
    "static": (
        "sdar",
        {"seed": 6, "block_size": 8},
        {"strategy": "low_confidence_static", "steps": 3},
    ),
    "entropy": ("sdar", {"seed": 4, "block_size": 8}, {"strategy": "entropy_bounded"}),
    "entropy, scheduled": (
        "sdar",
        {"seed": 1, "block_size": 8},
        {"strategy": "entropy_bounded", "entropy_bound": 3.0, "steps": 4},
    ),
    "factor": ("sdar_moe", {"seed": 6, "block_size": 8}, {"factor": 1.5}),
}


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_blocks``."""
    return {"dtype": "f32", **CASES[case][1]}


def tensors_of(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors under the oracle's names, parsed ``config.json``) of a case."""
    from golden_files import drawn
    from tiny_blocks import make_blocks

    return drawn(make_blocks, CASES[case][0], **arguments(case))


def options_of(case: str, config: dict[str, Any]) -> Any:
    from golden_files import maker_of

    return maker_of("blocks").block_options(config, CASES[case][2])


def main() -> None:
    from golden_files import checksum, maker_of, save, text_arrays
    from oracle.blocks import generate_blocks

    blocks = maker_of("blocks")
    ids, made = blocks.token_ids(), dict[str, Any]()
    for case in CASES:
        tensors, config = tensors_of(case)
        judge = blocks.transformers_judge(tensors, config)
        made[f"{case}: logits"] = judge(ids, 0)[list(blocks.ROWS)]
        text = generate_blocks(judge, ids[: blocks.PROMPT], options_of(case, config))
        made |= text_arrays(case, text)
        made[f"{case}: checksum"] = checksum(tensors)
    save("block_variants", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

"""Makes ``indel.npz``: LLaDA2.2's decoding, which inserts and deletes, over `transformers`.

    python tests/golden/make_indel.py             # needs the `judge` extra: torch, transformers

The judge is that of ``make_blocks.py`` (GLM-4-MoE under a block mask); the loop, which caches
nothing, is ``oracle/indel.py``'s. The commands are tokens that the tiny model likes to write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

# seed, tokens that delete and split, options of the generation, steps behind the last mask
CASES: dict[str, tuple[int, int, int, dict[str, float], int]] = {
    "every rule": (1, 6, 171, {"threshold": 0.6, "edit_threshold": 0.0}, 6),
    "masks of the start": (5, 182, 183, {"threshold": 0.5, "edit_threshold": 0.3}, 6),
    "no step behind the last mask": (3, 62, 126, {"threshold": 0.6, "edit_threshold": 0.0}, 0),
}


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_blocks``."""
    seed, delete, split, _, _ = CASES[case]
    return {"seed": seed, "dtype": "f32", "delete_token_id": delete, "split_token_id": split}


def tensors_of(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors under the oracle's names, parsed ``config.json``) of a case."""
    from golden_files import drawn
    from tiny_blocks import make_blocks

    return drawn(make_blocks, "llada2", **arguments(case))


def text_of(judge: Any, case: str, config: dict[str, Any], prompt: list[int]) -> Any:
    """The loop's text over a judge."""
    from golden_files import maker_of
    from oracle.indel import Commands, generate_indel

    _, delete, split, asked, post = CASES[case]
    o = maker_of("blocks").block_options(config, asked)
    return generate_indel(judge, prompt, o, Commands(delete, split, post))


def main() -> None:
    from golden_files import assert_clear, checksum, maker_of, save

    blocks = maker_of("blocks")
    prompt, made = blocks.token_ids()[: blocks.PROMPT], dict[str, Any]()
    for case in CASES:
        tensors, config = tensors_of(case)
        text = text_of(blocks.transformers_judge(tensors, config), case, config, prompt)
        print(f"{case}: {text.ids}, {len(text.written)} steps, {sorted(text.events)}")
        print(f"  margin {text.margin:.1e}", flush=True)
        assert_clear(case, text.margin)
        made[f"{case}: ids"] = text.ids
        made[f"{case}: written"] = json.dumps(text.written)
        made[f"{case}: events"] = json.dumps(sorted(text.events))
        made[f"{case}: checksum"] = checksum(tensors)
    save("indel", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

"""Makes ``indel.npz``: LLaDA2.2's decoding, which inserts and deletes, over `transformers`.

    python tests/golden/make_indel.py             # needs the `judge` extra: torch, transformers

The judge is that of ``make_blocks.py`` (GLM-4-MoE under a block mask); the loop, which caches
nothing, is ``oracle/indel.py``'s. The commands are tokens that the tiny model likes to write.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GOLDEN = HERE / "indel.npz"
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
    from tiny_blocks import make_blocks

    with tempfile.TemporaryDirectory() as folder:
        tensors = make_blocks(folder, "llada2", **arguments(case))
        return tensors, json.loads((Path(folder) / "config.json").read_text())


def text_of(judge: Any, case: str, config: dict[str, Any], prompt: list[int]) -> Any:
    """The loop's text over a judge."""
    from oracle.blocks import BlockOptions
    from oracle.indel import Commands, generate_indel
    from tiny_blocks import special_ids

    _, delete, split, asked, post = CASES[case]
    o = BlockOptions(
        max_new_tokens=24,
        mask=config["mask_token_id"],
        valid_vocab=max(special_ids(config).values()) + 1,
        width=config["block_size"],
        **asked,
    )
    return generate_indel(judge, prompt, o, Commands(delete, split, post))


def main() -> None:
    from golden_files import checksum, maker_of

    blocks = maker_of("blocks")
    prompt, made = blocks.token_ids()[: blocks.PROMPT], dict[str, Any]()
    for case in CASES:
        tensors, config = tensors_of(case)
        text = text_of(blocks.transformers_judge(tensors, config), case, config, prompt)
        print(f"{case}: {text.ids}, {len(text.written)} steps, {sorted(text.events)}")
        print(f"  margin {text.margin:.1e}", flush=True)
        assert text.margin > blocks.MARGIN, f"{case}: a decision is too close to call; other seed"
        made[f"{case}: ids"] = text.ids
        made[f"{case}: written"] = json.dumps(text.written)
        made[f"{case}: events"] = json.dumps(sorted(text.events))
        made[f"{case}: checksum"] = checksum(tensors)
    np.savez_compressed(GOLDEN, **made)
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()

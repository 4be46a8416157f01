"""Makes ``hybrid_blocks.npz``: what `transformers` computes for tiny conversions of Qwen3.5, dense
and with experts, to block diffusion.

    python tests/golden/make_hybrid_blocks.py     # needs the `judge` extra: torch, transformers

The judge is Qwen3.5 itself: its attention layers get a block mask, or a causal one with a last
block that sees itself as a whole, its DeltaNet layers stay as they are. For every case the file
keeps logits of some rows in float32, a whole greedy generation (``oracle/blocks.py``'s loop over
the judge, nothing cached) and a checksum of the weights, which are drawn again from the seed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GOLDEN = HERE / "hybrid_blocks.npz"
LENGTH, ROWS = 48, (0, 1, 7, 23, 30, 47)  # tokens, and those whose logits are kept
PROMPT, WIDTH = 19, 8
MARGIN = 1e-4  # least distance of a decision to another one
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
    from tiny_hybrid import make_hybrid

    with tempfile.TemporaryDirectory() as folder:
        tensors = make_hybrid(folder, CASES[case][0], **arguments(case))
        config = json.loads((Path(folder) / "config.json").read_text())
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
    import torch
    from oracle.blocks import block_mask
    from oracle.hybrid_blocks import last_block_mask

    model = _model(config)
    state = {
        name if name.startswith("lm_head") else "model." + name: torch.from_numpy(value)
        for name, value in tensors.items()
    }
    missing, surplus = model.load_state_dict(state, strict=False)
    assert (list(missing), list(surplus)) == ([], []), (missing, surplus)

    def logits(ids: Sequence[int], origin: int = 0) -> np.ndarray:
        n = len(ids)
        visible = last_block_mask(n, origin) if causal else block_mask(n, WIDTH, origin)
        mask = torch.where(torch.from_numpy(visible), 0.0, torch.finfo(torch.float32).min)
        masks = {"full_attention": mask[None, None], "linear_attention": None}
        with torch.no_grad():
            out = model(input_ids=torch.tensor([list(ids)]), attention_mask=masks, use_cache=False)
        found: np.ndarray = out.logits[0].numpy()
        return found

    return logits


def _model(config: dict[str, Any]) -> Any:
    from importlib import import_module

    import torch

    sparse = "num_experts" in config
    module = "qwen3_5_moe" if sparse else "qwen3_5"
    name = "Qwen3_5Moe" if sparse else "Qwen3_5"
    home = import_module(f"transformers.models.{module}")
    dropped = ("architectures", "dtype", "model_type", "text_config")
    keys = {k: v for k, v in config.items() if k not in dropped}
    settings = getattr(home, name + "TextConfig")(**keys, attn_implementation="eager")
    return getattr(home, name + "ForCausalLM")(settings).to(torch.float32).eval()


def main() -> None:
    import torch
    import transformers
    from golden_files import checksum
    from oracle.blocks import generate_blocks

    made: dict[str, Any] = {}
    for case in CASES:
        tensors, config = tensors_of(case)
        options = options_of(case, config)
        judge = transformers_judge(tensors, config, options.causal)
        made[f"{case}: logits"] = judge(token_ids(), LENGTH - WIDTH)[list(ROWS)]
        text = generate_blocks(judge, token_ids()[:PROMPT], options)
        print(f"{case}: {text.ids}, {len(text.changed)} steps, margin {text.margin:.1e}")
        assert text.margin > MARGIN, f"{case}: a decision is too close to call; change its seed"
        made[f"{case}: ids"] = text.ids
        made[f"{case}: changed"] = json.dumps(text.changed)
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = f"transformers {transformers.__version__}, torch {torch.__version__}"
    np.savez_compressed(GOLDEN, **made)
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()

"""Makes ``full_attention.npz``: what `transformers` computes for tiny models with full attention.

    python tests/golden/make_full_attention.py        # needs the `judge` extra: torch, transformers

Dream is Qwen2, LLaDA Llama and LLaDA-MoE Qwen3-MoE whose chosen weights are not scaled, each under
a mask that hides nothing. For every case the file keeps logits of some rows in float32, a whole
greedy generation (``oracle/full_attention.py``'s loop over the judge, nothing cached) and a
checksum of the weights, which are drawn again from the seed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS = 48, (0, 1, 7, 23, 30, 47)  # tokens, and those whose logits are kept
PROMPT, NEW, WIDTH = 19, 24, 8  # tokens, of the answer, of a block
WHOLE = {"width": NEW}
DREAM = {**WHOLE, "steps": 9, "eps": 1e-3, "threshold": 1.0}
# family, arguments of make_full_attention, options of the generation
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dream, origin": ("dream", {}, {**DREAM, "confidence": "random"}),
    "dream, maskgit_plus": ("dream", {}, DREAM),
    "dream, topk_margin": ("dream", {}, {**DREAM, "confidence": "margin"}),
    "dream, entropy": ("dream", {}, {**DREAM, "confidence": "entropy"}),
    "dream, entropy, drawn": (
        "dream",
        {},
        {**DREAM, "steps": 40, "confidence": "entropy", "confidence_temperature": 0.5},
    ),
    "dream, threshold": ("dream", {}, {"threshold": 0.5}),
    "llada, schedule": ("llada", {}, {"threshold": 1.0, "steps": 3}),
    "llada, schedule, entropy": (
        "llada",
        {"num_key_value_heads": 4},
        {"threshold": 1.0, "steps": 5, "confidence": "entropy"},
    ),
    "llada, random": ("llada", {}, {"threshold": 1.0, "steps": 4, "confidence": "random"}),
    "llada, factor": ("llada", {}, {"factor": 1.2}),
    "llada, threshold": ("llada", {"tie_word_embeddings": True}, {"threshold": 0.8}),
    "llada_moe, threshold": ("llada_moe", {}, {"threshold": 0.6}),
}
SEEDS = dict(zip(CASES, (4, 0, 6, 8, 4, 8, 8, 2, 8, 11, 9, 12), strict=True))


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_full_attention``."""
    return {"seed": SEEDS[case], "dtype": "f32", **CASES[case][1]}


def options_of(case: str, config: dict[str, Any]) -> Any:
    from oracle.full_attention import CanvasOptions
    from tiny_full_attention import special_ids

    family = CASES[case][0]
    ids = special_ids(family, config["vocab_size"])
    asked = {"width": WIDTH, "shift": int(family == "dream"), **CASES[case][2]}
    mask = max(ids.values())
    return CanvasOptions(max_new_tokens=NEW, mask=mask, valid_vocab=mask + 1, **asked)


def token_ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(0, 256, LENGTH)]


class TransformersJudge:
    """The class for the trunk; logits [n, V] in float32."""

    def __init__(self, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> None:
        import transformers
        from torch_models import load_trunk

        kinds = {"qwen2": "Qwen2", "llama": "Llama", "qwen3_moe": "Qwen3Moe"}
        kind = getattr(transformers, kinds[config["model_type"]] + "ForCausalLM")
        keys = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
        made = kind(kind.config_class(**keys, attn_implementation="eager"))
        self.model = load_trunk(made, tensors, tied=config["tie_word_embeddings"])

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        from torch_models import additive_mask, logits_of

        nothing_hidden = np.ones((len(ids), len(ids)), bool)
        return logits_of(self.model, ids, additive_mask(nothing_hidden))

    def part(self, ids: Sequence[int], first: int, last: int) -> np.ndarray:
        assert last - first == len(ids), "this judge keeps nothing"
        return self.logits(ids)


def make_case(case: str) -> tuple[TransformersJudge, dict[str, np.ndarray], dict[str, Any]]:
    """A judge, and the tensors and configuration that it has."""
    import tempfile

    from tiny_full_attention import make_full_attention

    with tempfile.TemporaryDirectory() as folder:
        tensors, config = make_full_attention(folder, CASES[case][0], **arguments(case))
    return TransformersJudge(tensors, config), tensors, config


def main() -> None:
    from golden_files import checksum, save, text_arrays, versions
    from oracle.full_attention import generate_canvas

    made: dict[str, Any] = {}
    for case in CASES:
        judge, tensors, config = make_case(case)
        made[f"{case}: logits"] = judge.logits(token_ids())[list(ROWS)]
        text = generate_canvas(judge.part, token_ids()[:PROMPT], options_of(case, config))
        made |= text_arrays(case, text)
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = versions()
    save("full_attention", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

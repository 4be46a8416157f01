"""Makes ``blocks.npz``: what `transformers` computes for tiny block-diffusion models.

    python tests/golden/make_blocks.py        # needs the `judge` extra: torch, transformers

SDAR and A2D are Qwen3, SDAR-MoE Qwen3-MoE and Fast-dLLM v2 Qwen2, each under a block mask; LLaDA2's
layers are those of GLM-4-MoE: half of a head rotates, q and k are normed, the router is a sigmoid
with a bias and groups, the first layer is dense, the shared expert has no gate. For every case the
file keeps logits of some rows in float32, a whole greedy generation (``oracle/blocks.py``'s loop
over the judge, nothing cached) and a checksum of the weights, which are drawn again from the seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS = 48, (0, 1, 7, 23, 30, 47)  # tokens, and those whose logits are kept
# family, arguments of make_blocks, options of the generation
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llada2": ("llada2", {}, {"threshold": 0.6}),
    "llada2, editing": ("llada2", {}, {"threshold": 0.3, "edit_threshold": 0.7}),
    "llada2, editing to the limit": ("llada2", {}, {"threshold": 0.3, "edit_threshold": 0.3}),
    "llada2, editing cut short": (
        "llada2",
        {},
        {"threshold": 0.0, "edit_threshold": 0.0, "max_post_steps": 2},
    ),
    "llada2, plain weights": (
        "llada2",
        {"norm_topk_prob": False, "topk_group": 4, "first_k_dense_replace": 2},
        {"threshold": 0.6},
    ),
    "sdar": ("sdar", {}, {"threshold": 0.6}),
    "sdar, schedule": ("sdar", {"block_size": 8}, {"threshold": 0.8, "steps": 3}),
    "sdar_moe": ("sdar_moe", {}, {"threshold": 0.3}),
    "fast_dllm": ("fast_dllm", {}, {"threshold": 0.4, "sub_block": 4}),
    "a2d": ("a2d", {}, {"threshold": 1.0, "absolute": False}),
}
PROMPT = 19  # tokens; no block ends there
SEEDS = {case: 2 if case == "a2d" else 1 for case in CASES}


def tensors_of(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(tensors under the oracle's names, parsed ``config.json``) of a case."""
    from golden_files import drawn
    from tiny_blocks import make_blocks

    return drawn(make_blocks, CASES[case][0], **arguments(case))


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_blocks``."""
    return {"seed": SEEDS[case], "dtype": "f32", **CASES[case][1]}


def options_of(case: str, config: dict[str, Any]) -> Any:
    return block_options(config, CASES[case][2])


def block_options(config: dict[str, Any], asked: dict[str, Any]) -> Any:
    """Three blocks."""
    from oracle.blocks import BlockOptions
    from tiny_blocks import special_ids

    ids = special_ids(config)
    width = config.get("bd_size") or config["block_size"]
    asked = {"shift": int(config["model_type"] == "Fast_dLLM_Qwen"), **asked}
    return BlockOptions(
        max_new_tokens=3 * width,
        mask=config["mask_token_id"],
        valid_vocab=max(ids.values()) + 1,
        width=width,
        **asked,
    )


def token_ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(0, 256, LENGTH)]


def transformers_judge(
    tensors: dict[str, np.ndarray], config: dict[str, Any]
) -> Callable[[Sequence[int], int], np.ndarray]:
    """Ids and the blocks' origin to logits [n, V] in float32, by the class for the trunk."""
    from oracle.blocks import block_mask
    from torch_models import additive_mask, load_trunk, logits_of

    model = load_trunk(_model(config), {_name(name): value for name, value in tensors.items()})
    width = config.get("bd_size") or config["block_size"]

    def logits(ids: Sequence[int], origin: int = 0) -> np.ndarray:
        return logits_of(model, ids, additive_mask(block_mask(len(ids), width, origin)))

    return logits


def _model(config: dict[str, Any]) -> Any:
    import transformers

    names = {
        "sdar": "Qwen3ForCausalLM",
        "sdar_moe": "Qwen3MoeForCausalLM",
        "a2d-llama": "LlamaForCausalLM",
        "a2d-qwen2": "Qwen2ForCausalLM",
        "a2d-qwen3": "Qwen3ForCausalLM",
        "llama": "LlamaForCausalLM",
        "Fast_dLLM_Qwen": "Qwen2ForCausalLM",
        "llada2_moe": "Glm4MoeForCausalLM",
    }
    kind = getattr(transformers, names[config["model_type"]])
    keys = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    if config["model_type"] == "llada2_moe":
        rope = {"rope_type": "default", "rope_theta": keys.pop("rope_theta")}
        rope["partial_rotary_factor"] = keys.pop("partial_rotary_factor")
        keys |= {"rope_parameters": rope, "n_routed_experts": keys.pop("num_experts")}
        keys["n_shared_experts"] = keys.pop("num_shared_experts")
    return kind(kind.config_class(**keys, attn_implementation="eager"))


def _name(name: str) -> str:
    """GLM-4-MoE's words; the others' names are the oracle's."""
    name = name.replace("mlp.shared_expert.", "mlp.shared_experts.")
    return name.replace("gate.expert_bias", "gate.e_score_correction_bias")


def main() -> None:
    from golden_files import checksum, save, text_arrays, versions
    from oracle.blocks import generate_blocks

    made: dict[str, Any] = {}
    for case in CASES:
        tensors, config = tensors_of(case)
        judge = transformers_judge(tensors, config)
        made[f"{case}: logits"] = judge(token_ids(), 0)[list(ROWS)]
        text = generate_blocks(judge, token_ids()[:PROMPT], options_of(case, config))
        made |= text_arrays(case, text)
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = versions()
    save("blocks", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

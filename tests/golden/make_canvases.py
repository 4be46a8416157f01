"""Makes ``canvases.npz``: what `transformers` computes for tiny DiffusionGemma checkpoints.

    python tests/golden/make_canvases.py        # needs the `judge` extra: torch, transformers

For every case the file keeps, in float32, logits of some rows of a causal pass, of a canvas behind
it and of the next step on that canvas, which is conditioned on the first; a whole generation by the
plain loop of ``oracle/canvas.py`` over the official classes: ids, kept positions, and how close its
closest decision was; and a checksum of the weights, which ``tiny_canvas.py`` draws again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, ROWS, CANVAS_ROWS = 30, (0, 1, 8, 9, 17, 29), (0, 5, 15)  # past the window of 9
PROMPT, VALID = 21, 288  # tokens of the prompt, real ids
TEMPERATURE = 0.6  # of the first canvas step, in what the second is conditioned on
MARGIN = 1e-5  # least distance of a decision to another one
# arguments of make_canvas, options of the generation
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "a low cap, a narrow window": (
        {"final_logit_softcapping": 14.0, "sliding_window": 4, "num_experts": 6},
        {"entropy_bound": 1.0, "seed": 5, "stability_threshold": 2},
    ),
    "cold": ({}, {"t_min": 0.02, "t_max": 0.1, "stability_threshold": 0, "seed": 9}),
}
SEEDS = {"plain": 4, "a low cap, a narrow window": 6, "cold": 6}


def arguments(case: str) -> dict[str, Any]:
    """Of ``make_canvas``."""
    return {"seed": SEEDS[case], **CASES[case][0]}


def weights(case: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(text tensors by name, the configuration as the oracle reads it) of a case."""
    from tiny_canvas import canvas_config, make_canvas

    with tempfile.TemporaryDirectory() as folder:
        return make_canvas(folder, **arguments(case)), canvas_config(**CASES[case][0])


def options_of(case: str, config: dict[str, Any]) -> Any:
    from oracle.canvas import CanvasOptions

    from clover_edge._core import decoding

    width = config["canvas_length"]
    return CanvasOptions(width, VALID, decoding.uniform, **CASES[case][1])


def token_ids() -> np.ndarray:
    return np.random.default_rng(8).integers(0, 256, LENGTH)


def canvas_ids(width: int) -> np.ndarray:
    return np.random.default_rng(9).integers(0, VALID, width)


def conditioning(logits: np.ndarray) -> np.ndarray:
    """What the next step is conditioned on, of a step's logits: real ids alone, sampled from."""
    previous = np.array(logits, float) / TEMPERATURE
    previous[:, VALID:] = -np.inf
    return previous


class Official:
    """The official model, as ``oracle.canvas.Judge``."""

    def __init__(self, case: str) -> None:
        import torch
        from transformers import DiffusionGemmaConfig, DiffusionGemmaTextConfig
        from transformers.models.diffusion_gemma import DiffusionGemmaForBlockDiffusion

        tensors, config = weights(case)
        outer = ("canvas_length", "tie_word_embeddings")
        text = DiffusionGemmaTextConfig(**{k: v for k, v in config.items() if k not in outer})
        vision = {"model_type": "gemma4_vision", "num_hidden_layers": 1, "hidden_size": 16}
        vision |= {"num_attention_heads": 1, "head_dim": 16, "intermediate_size": 16}
        whole = DiffusionGemmaConfig(
            text_config=text, vision_config=vision, canvas_length=config["canvas_length"]
        )
        whole._attn_implementation = "eager"
        self.model = DiffusionGemmaForBlockDiffusion(whole).to(torch.float32).eval()
        self.model.final_logit_softcapping = config["final_logit_softcapping"]
        state = {name: torch.from_numpy(value) for name, value in tensors.items()}
        missing, surplus = self.model.load_state_dict(state, strict=False)
        self.model.tie_weights()
        tied = ("model.encoder.", "lm_head.")
        others = [name for name in missing if not name.startswith(tied)]
        assert (others, list(surplus)) == ([], []), (others, surplus)

    def commit(self, ids: Any) -> tuple[np.ndarray, Any]:
        import torch
        from transformers import DynamicCache

        model, rows = self.model, torch.tensor(np.asarray(ids))[None]
        with torch.no_grad():
            cache = DynamicCache(config=model.config.get_text_config(decoder=True))
            hidden = model.model.encoder.language_model(input_ids=rows, cache=cache)
            logits = model.lm_head(hidden.last_hidden_state)[0]
            cap = model.final_logit_softcapping
            return (cap * torch.tanh(logits / cap)).numpy(), cache

    def canvas(self, context: Any, ids: Any, previous: np.ndarray | None) -> np.ndarray:
        import torch

        known = None if previous is None else torch.tensor(previous, dtype=torch.float32)[None]
        with torch.no_grad():
            out = self.model(
                cache=context,
                decoder_input_ids=torch.tensor(np.asarray(ids))[None],
                self_conditioning_logits=known,
            )
        logits: np.ndarray = out.logits[0].numpy()
        return logits


def passes(judge: Any, width: int) -> dict[str, np.ndarray]:
    """Logits of the three passes that are kept."""
    causal, context = judge.commit(token_ids())
    first = judge.canvas(context, canvas_ids(width), None)
    second = judge.canvas(context, canvas_ids(width), conditioning(first))
    rows = list(CANVAS_ROWS)
    return {"causal": causal[list(ROWS)], "first": first[rows], "second": second[rows]}


def main() -> None:
    from golden_files import assert_clear, checksum, save, versions
    from oracle.canvas import Canvas, generate_canvases

    made: dict[str, Any] = {}
    for case in CASES:
        tensors, config = weights(case)
        judge = Official(case)
        for name, logits in passes(judge, config["canvas_length"]).items():
            made[f"{case}: {name}"] = logits.astype(np.float32)
        prompt, options = token_ids()[:PROMPT].tolist(), options_of(case, config)
        text = generate_canvases(judge, prompt, options)
        twin = generate_canvases(Canvas(tensors, config), prompt, options)
        assert twin.ids == text.ids, f"{case}: rounding decides; change its seed"
        steps = [len(kept) for kept in text.kept]
        print(f"{case}: {len(set(text.ids))} different ids, {steps} steps, {text.margin:.1e}")
        print([[len(k) for k in kept] for kept in text.kept], made[f"{case}: first"].max())
        assert_clear(case, text.margin, MARGIN)
        made[f"{case}: ids"], made[f"{case}: kept"] = text.ids, json.dumps(text.kept)
        made[f"{case}: margin"] = text.margin
        made[f"{case}: checksum"] = checksum(tensors)
    made["made_with"] = versions()
    save("canvases", made)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()

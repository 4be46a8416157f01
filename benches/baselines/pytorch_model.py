"""PyTorch: the class of `transformers` for the autoregressive half, random weights in bfloat16."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from forward_cases import BLOCK, Ids
from peers.codes import needs

from .side import Asked

_CHUNK = 512  # ids at once, lest a long prompt's attention outgrow memory


class PyTorch:
    """Tokens that a test stands behind are kept as a cache, and copied."""

    runtime, package = "pytorch", "torch"
    load_ns = None

    def __init__(self, asked: Asked) -> None:
        with needs("judge"):
            import torch
            from transformers import DynamicCache
            from transformers.models.qwen3_5_moe import (
                Qwen3_5MoeForCausalLM,
                Qwen3_5MoeTextConfig,
            )
        self._torch, self._name = torch, asked.bench.name
        torch.set_num_threads(asked.bench.threads)
        torch.manual_seed(0)
        given = asked.bench.shape.config()
        text = {key: value for key, value in given.items() if key not in ("architectures", "dtype")}
        config = Qwen3_5MoeTextConfig(**{**text, "model_type": "qwen3_5_moe_text"})
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            self._model = Qwen3_5MoeForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(before)
        named = inspect.signature(self._model.forward).parameters
        self._slot = "cache" if "cache" in named else "past_key_values"
        self._empty = lambda: DynamicCache(config=self._model.config)
        self._ids = Ids(asked.bench.shape.vocab, seed=1)
        self._kept: dict[int, Any] = {}
        self._cache: Any = None

    def facts(self) -> dict[str, Any]:
        weights = list(self._model.parameters())
        return {
            "model_filename": f"{self._name}, Qwen3_5MoeForCausalLM",
            "model_type": "qwen3_5_moe bf16",
            "model_size": sum(each.numel() * each.element_size() for each in weights),
            "model_n_params": sum(each.numel() for each in weights),
            "quant": "bf16",
            "group_size": None,
            "type_k": "bf16",
            "type_v": "bf16",
        }

    def behind(self, depth: int) -> None:
        if depth not in self._kept:
            self._cache = self._empty()
            self.extend(depth)
            self._kept[depth] = self._cache
        self._cache = copy.deepcopy(self._kept[depth])

    def extend(self, count: int) -> None:
        for start in range(0, count, _CHUNK):
            self._run(min(_CHUNK, count - start), self._cache, 1)

    def preview(self) -> None:
        self._run(BLOCK, copy.deepcopy(self._cache), 0)

    def _run(self, count: int, cache: Any, logits: int) -> None:
        """`logits`: of how many last rows; 0: of all."""
        ids = self._torch.tensor([self._ids(count)])
        with self._torch.inference_mode():
            self._model(input_ids=ids, use_cache=True, logits_to_keep=logits, **{self._slot: cache})

    def close(self) -> None:
        self._kept.clear()

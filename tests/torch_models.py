"""What judges of golden files do with a model of `transformers`: weights in, logits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def load_trunk(model: Any, tensors: Mapping[str, np.ndarray], *, tied: bool = False) -> Any:
    """The model in float32 with these weights, named without the prefix of the trunk.

    None may be missing or left over, but for a ``tied`` head.
    """
    import torch

    model = model.to(torch.float32).eval()
    state = {
        name if name.startswith("lm_head") else "model." + name: torch.from_numpy(value)
        for name, value in tensors.items()
    }
    missing, surplus = model.load_state_dict(state, strict=False)
    lacking = ["lm_head.weight"] if tied else []
    assert (list(missing), list(surplus)) == (lacking, []), (missing, surplus)
    return model


def additive_mask(visible: np.ndarray) -> Any:
    """Who sees whom, booleans [n, n], as the tensor [1, 1, n, n] that eager attention adds."""
    import torch

    hidden = torch.finfo(torch.float32).min
    return torch.where(torch.from_numpy(visible), 0.0, hidden)[None, None]


def logits_of(model: Any, ids: Sequence[int] | np.ndarray, mask: Any = None) -> np.ndarray:
    """Logits [n, V] of one pass without a cache; causal unless a mask says otherwise."""
    import torch

    rows = torch.tensor(np.asarray(ids))[None]
    with torch.no_grad():
        out = model(input_ids=rows, attention_mask=mask, use_cache=False)
    found: np.ndarray = out.logits[0].numpy()
    return found

"""What a packed folder holds, in figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .loader import FORMAT_VERSION, PARTS, PackedFolder

_CLASSES = (
    ("experts", ("experts",)),
    ("feed-forward", ("dense.gate_up", "dense.down")),
    ("shared expert", ("shared.gate_up", "shared.down")),
    ("attention", ("attn.in", "attn.out")),
    ("deltanet", ("delta.in", "delta.out")),
    ("embedding", ("embed",)),
    ("head", ("head",)),
    ("router", ("router", "shared_gate")),
    ("drafter's context", ("context.in",)),
)


def tensor_class(name: str) -> str:
    """The row of the table that a tensor is counted in."""
    short = name.split(".", 2)[2] if name.startswith("layers.") else name
    for label, names in _CLASSES:
        if short in names:
            return label
    return "norms and small"


def tensor_classes(folder: PackedFolder) -> list[dict[str, Any]]:
    """Per class of tensors: how many, weights, stored bytes, schemes."""
    tensors: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    schemes: dict[str, set[str]] = {}
    for name, entry in folder.entries.items():
        label = tensor_class(name)
        tensors[label] += 1
        stored[label] += folder.sizes[name]
        for row in _matrices(entry):
            weights[label] += row["count"]
            schemes.setdefault(label, set()).add(row["scheme"])
    order = [label for label, _ in _CLASSES] + ["norms and small"]
    return [
        {
            "class": label,
            "tensors": tensors[label],
            "parameters": weights[label],
            "bytes": stored[label],
            "schemes": sorted(schemes[label]),
        }
        for label in order
        if tensors[label]
    ]


def active_parameters(folder: PackedFolder) -> int:
    """Weights that work on a token: of the routed experts those that it chooses."""
    chosen, all_of_them = folder.spec.get("top_k", 0), folder.spec.get("num_experts", 0) or 1
    return sum(
        row["parameters"] * chosen // all_of_them
        if row["class"] == "experts"
        else row["parameters"]
        for row in tensor_classes(folder)
    )


def summarize(folder: PackedFolder) -> dict[str, Any]:
    """Family, recipe, spec, decode defaults and tensors by class; plain values. Of an ONNX folder
    graphs stand in for weights and tensors, and bytes are those of its files."""
    if folder.graphs:
        stored: dict[str, Any] = {
            "bytes": sum(file.stat().st_size for file in folder.files),
            "graphs": dict(folder.graphs),
        }
    else:
        classes = tensor_classes(folder)
        stored = {
            "parameters": sum(row["parameters"] for row in classes),
            "bytes": sum(row["bytes"] for row in classes),
            "tensors": classes,
        }
    return {
        "path": str(folder.path),
        "format": "onnx" if folder.graphs else "packed",
        "format_version": FORMAT_VERSION,
        "family": folder.family,
        "recipe": folder.recipe,
        "group_size": folder.group_size,
        **stored,
        "files": [file.name for file in folder.files],
        "spec": dict(folder.spec),
        "generation": dict(folder.generation),
    }


def _matrices(entry: Any) -> list[dict[str, Any]]:
    """Scheme (with its group) and number of weights of each matrix of an entry."""
    if entry["scheme"] != "experts":
        return [_matrix(entry, 1)]
    return [_matrix(entry["parts"][part], entry["shape"][0]) for part in PARTS]


def _matrix(entry: Any, copies: int) -> dict[str, Any]:
    count = copies
    for n in entry["shape"]:
        count *= n
    group = f" g{entry['group']}" if entry.get("group") else ""
    return {"scheme": entry["scheme"] + group, "count": count}

"""The tensor table under construction: ours, made of the checkpoint's, each checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import CheckpointError
from ...quant.recipes import EMBED, FLOAT, HEAD
from ...quant.schemes import Shape
from ..checkpoint import Checkpoint
from ..sources import FLOAT_DTYPES
from .base import ExpertStack, Piece, Tensor

EMBEDDING, HEAD_NAME = "embed_tokens.weight", "lm_head.weight"
_NAMED = 8  # names listed in an error before "and n more"


@dataclass
class TensorTable:
    """Collects our tensors and the checkpoint names that they use up."""

    checkpoint: Checkpoint
    spec: dict[str, Any]
    prefix: str  # of the checkpoint's names, all but the head's
    embedding_name: str = EMBEDDING
    head_name: str = HEAD_NAME
    tensors: list[Tensor | ExpertStack] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def expect(self, name: str, shape: Shape, *, loose: bool = False) -> Piece:
        """The whole of a checkpoint tensor, as a piece. ``loose``: it may carry singleton axes."""
        info = self.checkpoint.tensors.get(name)
        if info is None:
            self.missing.append(name)
            return Piece(name, 0, 0)
        self.used.add(name)
        same = _squeezed(info.shape) == _squeezed(shape) if loose else info.shape == shape
        if not same:
            reason = f"shape {list(info.shape)}, the configuration asks for {list(shape)}"
            raise CheckpointError(str(info.file), name, reason)
        if info.dtype not in FLOAT_DTYPES:
            known = ", ".join(FLOAT_DTYPES)
            raise CheckpointError(str(info.file), name, f"dtype {info.dtype} is not one of {known}")
        return Piece(name, 0, 1 if len(shape) == 1 else shape[0])

    def add(self, name: str, kind: str, shape: Shape, *pieces: Piece) -> None:
        self.tensors.append(Tensor(name, kind, shape, pieces))

    def vector(self, ours: str, theirs: str, *shape: int, loose: bool = False) -> None:
        """A tensor that stays float and keeps its shape."""
        self.add(ours, FLOAT, shape, self.expect(theirs, shape, loose=loose))

    def embedding(self) -> None:
        shape = (self.spec["vocab_size"], self.spec["hidden_size"])
        self.add("embed", EMBED, shape, self.expect(self.prefix + self.embedding_name, shape))

    def head(self) -> None:
        """The final norm and the projection onto the vocabulary, if it has weights of its own."""
        hidden, vocab = self.spec["hidden_size"], self.spec["vocab_size"]
        self.vector("final_norm", f"{self.prefix}norm.weight", hidden)
        if not self.spec["tie_embeddings"]:
            self.add("head", HEAD, (vocab, hidden), self.expect(self.head_name, (vocab, hidden)))
        elif self.head_name in self.checkpoint.tensors:
            self.used.add(self.head_name)
            self.warnings.append(f"{self.head_name} is ignored: the configuration ties it to embed")

    def check_missing(self, hint: str = "") -> None:
        """CheckpointError naming what was expected in vain so far. Call it layer by layer: a
        configuration may claim any number of them."""
        if self.missing:
            reason = f"missing from the checkpoint{hint}"
            raise CheckpointError(str(self.checkpoint.path), _listed(self.missing), reason)

    def check_surplus(
        self, family: str, *, prefixes: tuple[str, ...] = (), suffixes: tuple[str, ...] = ()
    ) -> None:
        """CheckpointError naming tensors that nothing asked for; those whose names start or end
        so are ignored, and those of ``prefixes`` counted in a warning."""
        surplus = [
            name
            for name in self.checkpoint.tensors
            if name not in self.used and not (name.startswith(prefixes) or name.endswith(suffixes))
        ]
        if surplus:
            reason = f"not known to the {family} family"
            raise CheckpointError(str(self.checkpoint.path), _listed(surplus), reason)
        counts = {
            prefix: sum(name.startswith(prefix) for name in self.checkpoint.tensors)
            for prefix in prefixes
        }
        if parts := [f"{count} of {prefix}*" for prefix, count in counts.items() if count]:
            self.warnings.append(
                f"tensors that the text model does not use are ignored: {', '.join(parts)}"
            )


def find_prefix(checkpoint: Checkpoint, prefixes: Sequence[str], embedding: str = EMBEDDING) -> str:
    """The first of ``prefixes`` under which there is an embedding; else CheckpointError."""
    for prefix in prefixes:
        if prefix + embedding in checkpoint.tensors:
            return prefix
    looked = " or ".join(prefix + embedding for prefix in prefixes)
    raise CheckpointError(str(checkpoint.path), embedding, f"is missing: no {looked}")


def _squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

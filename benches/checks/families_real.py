"""Real weights from GGUF files, run autoregressively at f32: against a plain float forward of the
same dequantised weights, and against llama.cpp as far as that forward agrees with it.

llama.cpp rounds activations to 8 bits where a file's weights are quantised. How far it is from the
float forward is therefore measured in the same run, and is the bound: what it does, not what we do.
On the same weights widened to F32 only its half-precision keys and values are left.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator

import real_models
from checks.row import Check, Context, Row, at_least, at_most
from peers.codes import Missing
from real_models import RealModel, compare

FLOAT_KL = 1e-6  # of float32 sums in another order
WIDE_KL = 1e-5  # of keys and values in half precision
RATIO, POINTS = 1.01, 0.5  # of what the float forward has; percent


def _check(model: RealModel) -> Check:
    def check(context: Context) -> Iterator[Row]:
        scratch = context.scratch / "real"
        scratch.mkdir()
        try:
            yield from _rows(model, context)
        except Missing as reason:
            yield Row(f"real weights, {model.name}", "-", "-", None, str(reason))
        finally:
            shutil.rmtree(scratch)  # gigabytes

    check.__name__ = f"real_weights_{model.name}"
    return check


def _rows(model: RealModel, context: Context) -> Iterator[Row]:
    scratch, label = context.scratch / "real", f"{model.name} at f32 against"
    path = model.gguf(context.models, scratch)
    ours = real_models.run_ours(path, scratch / "f32")
    plain, firsts = real_models.run_plain(path, ours)
    gc.collect()  # a model of transformers holds references to itself
    found = compare(plain, ours.logits)
    note = f"{found.positions} positions"
    yield at_most(f"{label} plain float: KL", found.kl, FLOAT_KL, note=note)
    yield at_least(f"{label} plain float: top-1", 100 * found.top1, 99.5, "{:.2f}", " %")
    name = f"{model.name}, autoregressive: ids that plain float puts first"
    yield at_least(name, 100 * firsts, 96, "{:.1f}", " %", f"{len(ours.text)} ids")
    llama = real_models.run_llama(path, ours.ids)
    found, floats = compare(llama, ours.logits), compare(llama, plain)
    note = f"{found.kl:.2e}, {100 * found.top1:.2f} % the same first choice"
    name = f"{label} llama.cpp: KL, of plain float's own"
    yield at_most(name, found.kl / floats.kl, RATIO, "{:.4f}", "x", note)
    lost = 100 * (floats.top1 - found.top1)
    name = f"{label} llama.cpp: top-1 below plain float's own"
    yield at_most(name, lost, POINTS, "{:.2f}", " points")
    wide = real_models.widen(path, scratch / "wide.gguf")
    found = compare(real_models.run_llama(wide, ours.ids), ours.logits)
    yield at_most(f"{label} llama.cpp at F32: KL", found.kl, WIDE_KL)


CHECKS: list[Check] = [_check(model) for model in real_models.MODELS]

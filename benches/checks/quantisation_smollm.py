"""SmolLM2-135M, real weights from a GGUF file: our import against a plain float forward of the same
dequantised weights, and against llama.cpp on the same file."""

from __future__ import annotations

from collections.abc import Iterator

import real_models
from checks.row import Check, Context, Row, Skipped, at_least, at_most
from peers.codes import Missing


def imported_model(context: Context) -> Iterator[Row]:
    """Logits at f32 of the built-in calibration texts: prose, chat, code, several languages."""
    model = real_models.SMOLLM2
    try:
        path = model.gguf(context.models, context.scratch)
        ours = real_models.run_ours(path, context.scratch / "smollm2-f32")
        name = f"{model.name} at f32 ({len(ours.ids)} positions) against"
        plain, _ = real_models.run_plain(path, ours)
        yield from _rows(f"{name} plain float", real_models.compare(plain, ours.logits), 99.5, 1e-4)
        llama = real_models.run_llama(path, ours.ids)
        yield from _rows(f"{name} llama.cpp", real_models.compare(llama, ours.logits), 97, 0.01)
        wide = real_models.widen(path, context.scratch / "smollm2-wide.gguf")
        llama = real_models.run_llama(wide, ours.ids)
        yield from _rows(
            f"{name} llama.cpp at F32", real_models.compare(llama, ours.logits), 97, 0.01
        )
    except Missing as reason:
        raise Skipped(str(reason)) from reason


def _rows(name: str, found: real_models.Compared, top1: float, kl: float) -> Iterator[Row]:
    yield at_least(f"{name}: top-1", 100 * found.top1, top1, "{:.2f}", " %")
    yield at_most(f"{name}: KL", found.kl, kl)


CHECKS: list[Check] = [imported_model]

"""The demo model, packed in several ways, against itself in float on its held-out text."""

from __future__ import annotations

from collections.abc import Iterator

from checks.row import Check, Context, Row, at_least, at_most

from clover_edge.evaluation import Evaluation
from clover_edge.quant import CALIBRATED, METHODS

PLAIN = ("int4", "absmax")
# Four bits for the experts, eight for what every token uses: the same bytes each.
WAYS = (
    *(("int4", method) for method in METHODS if method != "absmax"),
    *(("codebook4", method) for method in ("rtn", *CALIBRATED)),
)
RATIO = 0.5
AGREEMENT = {"int8": 97, "int4": 90}


def divergence_of_the_best_method(context: Context) -> Iterator[Row]:
    """KL(float || packed) of the best way to four bits, as a share of plain rounding's."""
    plain = _divergences(context.evaluation(*PLAIN))
    found = {f"{way[0]} {way[1]}": _divergences(context.evaluation(*way)) for way in WAYS}
    for mode, bound in plain.items():
        shares = {way: kl[mode] / bound for way, kl in found.items()}
        best = min(shares, key=shares.__getitem__)
        every = ", ".join(f"{way} {share:.2f}" for way, share in shares.items())
        name = f"demo model, int4, best method, {mode} mode: KL of plain rounding's"
        note = f"{best}: {found[best][mode]:.2e} of {bound:.2e}; {every}"
        yield at_most(name, shares[best], RATIO, "{:.2f}", "x", note)


def router_agreement(context: Context) -> Iterator[Row]:
    """Experts that float weights choose, too, where every model goes by its own hidden states."""
    for recipe, bound in AGREEMENT.items():
        evaluation = context.evaluation(recipe)
        for mode, worst in evaluation.worst_router_agreement.items():
            layers = [100 * row[mode]["router_agreement"] for row in evaluation.layers]
            note = "by layer " + ", ".join(f"{share:.2f}" for share in layers)
            name = f"demo model, {recipe}, {mode} mode: router agreement, worst layer"
            yield at_least(name, 100 * worst, bound, "{:.2f}", " %", note)


def _divergences(evaluation: Evaluation) -> dict[str, float]:
    assert evaluation.preview is not None
    return {"commit": evaluation.commit["kl"], "preview": evaluation.preview["kl"]}


CHECKS: list[Check] = [divergence_of_the_best_method, router_agreement]

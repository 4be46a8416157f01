"""Real float weights: masked-language models whose encoder matrices go through the quantiser."""

from __future__ import annotations

from collections.abc import Iterator

import masked_models
from checks.row import Check, Context, Row, Skipped, at_most

RATIO = 0.6


def _check(package: masked_models.Package) -> Check:
    def check(context: Context) -> Iterator[Row]:
        try:
            model = masked_models.open_model(package, context.models)
        except masked_models.Missing as reason:
            raise Skipped(str(reason)) from reason
        found = masked_models.compare(model, package.texts)
        plain = found[masked_models.PLAIN].kl
        shares = {way: tally.kl / plain for way, tally in found.items()}
        best = min(shares, key=shares.__getitem__)  # the codebook's codes take the same bits
        every = ", ".join(f"{way} {share:.2f}" for way, share in shares.items())
        rows = found[best].positions
        name = f"{package.name}, 4 bits g32, best way: KL of plain rounding's"
        note = f"{best}: {found[best].kl / rows:.2e} over {rows} masked positions; {every}"
        yield at_most(name, shares[best], RATIO, "{:.2f}", "x", note)

    check.__name__ = f"masked_language_{package.name}"
    return check


CHECKS: list[Check] = [_check(package) for package in masked_models.PACKAGES]

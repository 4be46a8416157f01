"""Plans a model for a device: the floor of a forward, break-even, memory, and the settings to take.

    python benches/roofline.py my-model-int4                     # packed; this machine, measured
    python benches/roofline.py CHECKPOINT --recipe int4 --device jetson-orin-nx-16gb apple-m4-pro
    python benches/roofline.py --shape full --device all         # Clover-35B-A3B, without a weight
    python benches/roofline.py --devices                         # what is in the table, and whence
    python benches/roofline.py my-model-int4 --check             # floors beside timings

A floor is the longer of reading a pass's bytes and computing its operations. No kernel reaches
both, so it is a bound on what to expect; nominal figures make it a loose one. Settings are
predicted by the planner that `clover-edge tune` uses, from floors instead of timings, and from how
many tokens a forward is said to accept. docs/planning.md explains the columns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from measure import Ceilings
from peers.codes import Missing, needs
from planning import acceptance, experts, text
from planning.counts import KV_BYTES, Counts
from planning.devices import DEVICES, MEASURED, Device, find
from planning.floors import autoregressive_seconds, break_even, cost_table, curve, fit
from planning.models import Described, describe, describe_shape
from planning.passes import cases_of, timed, widths_of
from synthetic import SHAPES

from clover_edge.errors import ArgumentError, CloverError
from clover_edge.generation import QUALITIES
from clover_edge.loader import open_core
from clover_edge.model import load
from clover_edge.tuning.planner import FREE, Candidate, Settings, Traces, predicted

ROUTINGS = ("correlated", "uniform", "measured")
SHOWN = 5  # candidates of a plan, in JSON
Row = dict[str, Any]


def counts_of(model: Described, options: argparse.Namespace) -> Counts:
    """The model's counts by the routing that is asked for. Raises ArgumentError where a model that
    is not packed is to be measured."""
    many, top_k = model.spec.get("num_experts", 0), model.spec.get("top_k", 0)
    if not many:
        routing = experts.NO_EXPERTS
    elif options.routing == "uniform":
        routing = experts.independent(many, top_k)
    elif options.routing == "correlated":
        routing = experts.correlated(many, top_k, options.correlation)
    else:
        folder = _packed(model, "routing: 'measured'")
        routing = experts.measured(open_core(folder, threads=options.threads), folder)
    return Counts(model, routing, options.context, options.kv)


def _packed(model: Described, asked: str) -> Any:
    if model.folder is None:
        raise ArgumentError(f"{asked}: {model.name} is not packed, so it cannot be run")
    return model.folder


def traces_of(model: Described, settings: Settings, options: argparse.Namespace) -> Traces:
    """What steps accept: measured of the model, or stated."""
    if options.acceptance == "measured":
        folder = _packed(model, "acceptance: 'measured'")
        with load(folder.path, threads=options.threads or None) as opened:
            return acceptance.measured(opened, settings)
    rates = {width: 1.0 for width in settings.widths}
    if len(rates) > 1:
        rates = acceptance.demo_rates(settings.widths)
    return acceptance.stated(settings, options.tokens_per_forward, rates)


def device_row(
    counts: Counts, device: Device, quality: str, traces: Traces, *, curves: bool = False
) -> Row:
    """Floors, break-even, memory and the planner's choice on one device; plain values. `curves`:
    also tokens a second over tokens per forward, by width."""
    spec, generation = counts.spec, counts.model.generation
    settings = Settings.of(spec, generation, quality)
    table = cost_table(counts, device, 2 * max(settings.widths), settings.limits)
    floors = []
    for case in cases_of(spec, generation):
        work = case.work(counts)
        seconds = device.seconds(work.operations, work.nbytes)
        bound = device.bound(work.operations, work.nbytes)
        floors.append({"pass": case.name, "ms": 1e3 * seconds, "bound_by": bound})
    row: Row = {"device": asdict(device), "floors": floors, "memory": asdict(fit(counts, device))}
    if counts.whole_text:
        return row
    row["autoregressive_tps"] = 1 / autoregressive_seconds(table[FREE])
    row["break_even"] = {
        width: break_even(table[FREE], width, fused=settings.fused) for width in widths_of(settings)
    }
    if curves:
        row["curves"] = {
            width: curve(table[FREE], width, fused=settings.fused) for width in widths_of(settings)
        }
    found = predicted(settings, table, traces)
    row["plan"] = {
        "quality": quality,
        "options": found[0].options,
        "threshold": generation.get("threshold") if found[0].mode == "diffusion" else None,
        "tokens_per_second": found[0].predicted_tps,
        "tokens_per_forward": _tokens_per_forward(found[0], traces, settings.fused),
        "candidates": [asdict(each) for each in found[:SHOWN]],
    }
    return row


def _tokens_per_forward(chosen: Candidate, traces: Traces, fused: bool) -> float:
    if chosen.mode == "ar":
        return 1.0
    trace = traces[chosen.mode, chosen.block_length]
    steps = sum(len(block) for text in trace.texts for block in text)
    apart = 0 if fused else sum(len(text) for text in trace.texts)
    return trace.tokens / (2 * steps if chosen.mode == "speculative" else steps + apart)


def check_rows(counts: Counts, device: Device, options: argparse.Namespace) -> list[Row]:
    """What passes take here, as multiples of their floors: with the routing that was assumed, and
    with the experts that were touched."""
    folder = _packed(counts.model, "check")
    core = open_core(folder, threads=options.threads, kv=options.kv)
    cases = cases_of(counts.spec, counts.model.generation)
    ceilings, rows = Ceilings(core.threads, core.isa), []
    for found in timed(core, counts, cases, ceilings):
        work = found.case.work(counts)
        touched = work.nbytes + (found.experts - work.experts) * counts.expert
        floor = device.seconds(work.operations, work.nbytes)
        of_touched = floor / device.seconds(work.operations, touched)
        rows.append(
            {
                "pass": found.case.name,
                "ms": 1e3 * found.seconds,
                "times_floor": found.times_floor,
                "times_floor_touched": found.times_floor * of_touched,
                "bound_by": device.bound(work.operations, touched),
                "experts": found.experts,
                "experts_assumed": work.experts,
            }
        )
    return rows


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is printed; plain values."""
    if options.shape:
        model = describe_shape(options.shape, options.recipe)
    else:
        model = describe(options.model, options.recipe)
    names = [MEASURED] if options.check else options.device
    devices = [find(name, threads=options.threads) for name in _named(names)]
    if options.attainable:
        devices = [device.reaching(*options.attainable) for device in devices]
    counts = counts_of(model, options)
    settings = Settings.of(model.spec, model.generation, options.quality)
    traces = {} if counts.whole_text else traces_of(model, settings, options)
    works = [(case, case.work(counts)) for case in cases_of(model.spec, model.generation)]
    found: dict[str, Any] = {
        "model": {"name": model.name, "recipe": model.recipe, "bytes": model.nbytes},
        "routing": counts.routing.name,
        "context": options.context,
        "kv": options.kv,
        "acceptance": options.acceptance,
        "passes": [
            {"pass": case.name, **asdict(work), "bytes": work.nbytes} for case, work in works
        ],
        "devices": [
            device_row(counts, device, options.quality, traces, curves=options.plot is not None)
            for device in devices
        ],
    }
    if options.acceptance == "stated":
        found["tokens_per_forward"] = options.tokens_per_forward
    if options.check:
        found["check"] = check_rows(counts, devices[0], options)
    return found


def _named(names: Sequence[str]) -> Iterable[str]:
    return DEVICES if list(names) == ["all"] else names


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for, checked; argparse's exit for what cannot be meant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", help="packed folder, checkpoint, or config")
    parser.add_argument("--shape", choices=SHAPES, help="of benches/synthetic.py, instead")
    parser.add_argument("--recipe", default="int4", help="of what is not packed (default int4)")
    parser.add_argument("--device", nargs="+", default=[MEASURED], metavar="NAME", help="or: all")
    parser.add_argument("--devices", action="store_true", help="list the table and stop")
    parser.add_argument(
        "--attainable",
        type=float,
        nargs=2,
        metavar=("READ", "INT8"),
        help="shares of bandwidth and int8 rate that are reached, on every device",
    )
    parser.add_argument("--routing", choices=ROUTINGS, default=ROUTINGS[0])
    parser.add_argument(
        "--correlation",
        type=float,
        default=experts.CORRELATED,
        metavar="SHARE",
        help="of router logits' variance that the rows of a pass have in common",
    )
    parser.add_argument("--context", type=int, default=4096, help="tokens in front of a pass")
    parser.add_argument("--kv", choices=tuple(KV_BYTES), default="f32")
    parser.add_argument("--quality", choices=QUALITIES, default="balanced")
    parser.add_argument("--acceptance", choices=("stated", "measured"), default="stated")
    parser.add_argument(
        "--tokens-per-forward",
        type=float,
        default=acceptance.TOKENS_PER_FORWARD,
        help="that the widest block is said to accept",
    )
    parser.add_argument("--check", action="store_true", help="time the passes on this machine, too")
    parser.add_argument("--threads", type=int, default=0, help="default: as models use")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="needs the extra `plot`")
    options = parser.parse_args(arguments)
    if not options.devices and (options.model is None) == (options.shape is None):
        parser.error("one of a model and --shape is needed")
    if options.context < 0 or not options.tokens_per_forward >= 1:
        parser.error("--context is below 0, or --tokens-per-forward below 1")
    if not all(0 < share <= 1 for share in options.attainable or ()):
        parser.error("--attainable: shares are above 0, and at most 1")
    if not 0 <= options.correlation < 1:
        parser.error(f"--correlation {options.correlation:g} is outside [0, 1)")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0, or 1 for a model or device that cannot be planned."""
    options = options_of(arguments)
    try:
        if options.devices:
            print(text.devices(DEVICES.values()))
            return 0
        found = plan(options)
    except CloverError as problem:
        print(f"roofline.py: {problem}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=2) if options.output == "json" else text.markdown(found))
    if options.plot:
        from planning.plot import plot

        try:
            with needs("plot"):
                plot(found, options.plot)
        except Missing as reason:
            print(f"without {options.plot}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Decoding, technique by technique: speed, forwards, rows, bytes, and what it changes.

    python benches/decode.py                                # the demo model on held-out requests
    python benches/decode.py --model PACKED --prompts FILE
    python benches/decode.py --slice --folder DIR           # a tenth of Clover, steps as stated
    python benches/decode.py --out DIR                      # decode.md, decode.json, decode.png

A packed model without a tokenizer, as the slice is, has random weights: how many tokens its steps
accept is then stated (--tokens-per-forward, commits counted), and the passes are replayed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from decode_cases import Measured, agreement, ladder, measure, speedup
from forward_cases import Bench, Ids
from peers.codes import Missing, needs
from replay import Replay
from synthetic import SHAPES

from clover_edge import demo
from clover_edge.corpus import TASK_SETS, task_rows
from clover_edge.loader import open_core, read_folder
from clover_edge.model import load

EXACT = 2  # the way that texts are compared with: block diffusion with nothing approximated


def table(found: dict[str, Measured], compared: bool) -> list[dict[str, Any]]:
    """A row for each way."""
    names = list(found)
    rows = []
    for name, way in found.items():
        row: dict[str, Any] = {
            "way": name,
            "tokens_per_second": way.tokens_per_second,
            "times_autoregressive": speedup(found, name, names[0]),
            "tokens_per_forward": way.tokens / max(way.forwards, 1),
            "rows_per_token": way.rows / way.tokens,
            "megabytes_per_token": way.bytes_read / way.tokens / 1e6,
        }
        if compared:
            row["agreement"] = agreement(way.ids, found[names[EXACT]].ids)
        rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]], title: str) -> str:
    """The table, agreement where there is any."""
    head = ["way", "tok/s", "× ar", "tokens/forward", "rows/token", "MB/token"]
    compared = "agreement" in rows[0]
    lines = [f"{title}\n", "| " + " | ".join(head + ["agreement"] * compared) + " |"]
    lines.append("| --- |" + " ---: |" * (len(head) - 1 + compared))
    for row in rows:
        cells = [row["way"], f"{row['tokens_per_second']:.1f}"]
        cells += [f"{row['times_autoregressive']:.2f}", f"{row['tokens_per_forward']:.2f}"]
        cells += [f"{row['rows_per_token']:.2f}", f"{row['megabytes_per_token']:.1f}"]
        if compared:
            cells.append(f"{100 * row['agreement']:.1f} %")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Speed over autoregressive decoding, a bar for each way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.5 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots()
    ways = [row["way"] for row in reversed(rows)]
    values = [row["times_autoregressive"] for row in reversed(rows)]
    bars = axes.barh(ways, values, color=["#4c78a8" if v >= 1 else "#b0b0b0" for v in values])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("tokens a second, times autoregressive decoding")
    axes.set_xlim(0, 1.15 * max(values))
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=120)


def _text_model(options: argparse.Namespace, path: Path) -> tuple[str, dict[str, Measured], bool]:
    with load(path, threads=options.threads) as model:
        if options.prompts:
            texts = options.prompts.read_text(encoding="utf-8").splitlines()
        else:
            count = -(-options.count // len(TASK_SETS))
            texts = [row["request"] for name in TASK_SETS for row in task_rows(name)[:count]]
        chat = model.has_chat_template
        prompts = [
            model.chat_prompt([{"role": "user", "content": text}]) if chat else model.tokenize(text)
            for text in texts
            if text.strip()
        ]
        stops = model.generation.get("eos_token_id", [])
        ways = ladder(options.max_new_tokens, model.spec["block_size"], options.coreset, stops)
        title = (
            f"{path.name}, {len(prompts)} prompts; {model.core.isa}, {model.core.threads} threads"
        )
        return title, measure(model.core, ways, prompts, options.rounds), True


def _random_model(options: argparse.Namespace, path: Path) -> tuple[str, dict[str, Measured], bool]:
    folder = read_folder(path)
    core, ids = open_core(folder, threads=options.threads or 0), Ids(folder.spec["vocab_size"])
    core.commit(core.new_state(512), ids(512), logits="none")  # maps every page
    ways = []
    for way in ladder(0, folder.spec["block_size"], options.coreset, []):
        width = way.options.get("block_length", 1)
        rate = options.tokens_per_forward * width / folder.spec["block_size"]
        if way.options["mode"] == "diffusion":
            way = replace(way, steps=max(1.0, width / max(rate, 1.0) - 1))
        if way.options["mode"] != "speculative":  # whose acceptance no steps can state
            ways.append(way)
    stated = f"{options.tokens_per_forward:g} tokens a forward stated"
    title = f"{path.name}, {stated}; {core.isa}, {core.threads} threads"
    return title, Replay(core, ids, options.context).measure(ways, options.rounds), False


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", type=Path, help="a packed folder; default: the demo model")
    which.add_argument("--slice", action="store_true", help="a tenth of Clover, random weights")
    parser.add_argument("--folder", type=Path, help="where the slice is made and kept")
    parser.add_argument("--recipe", default="int4")
    parser.add_argument("--routing", default="correlated")
    parser.add_argument("--prompts", type=Path, help="a prompt a line")
    parser.add_argument("--count", type=int, default=60, help="held-out requests of the demo model")
    parser.add_argument("--context", type=int, default=256, help="prompt tokens of the slice")
    parser.add_argument("--coreset", type=int, default=0, help="experts a block may use, as a way")
    parser.add_argument("--tokens-per-forward", type=float, default=4.0)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="also write decode.md, .json and .png here")
    return parser.parse_args()


def main() -> int:
    options = _options()
    with ExitStack() as stack:
        if options.slice:
            made = stack.enter_context(tempfile.TemporaryDirectory())
            bench = Bench(options.folder or Path(made), SHAPES["slice"], "slice", 0)
            found = _random_model(options, bench.path(options.recipe, routing=options.routing))
        elif options.model:
            has_text = (options.model / "tokenizer.json").is_file()
            found = (_text_model if has_text else _random_model)(options, options.model)
        else:
            handle = demo.pack()
            stack.callback(handle.cleanup)
            found = _text_model(options, demo.packed_path(handle))
    title, measured, compared = found
    rows = table(measured, compared)
    print(json.dumps({"title": title, "ways": rows}) if options.json else markdown(rows, title))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "decode.md").write_text(markdown(rows, title) + "\n", encoding="utf-8")
        (options.out / "decode.json").write_text(json.dumps({"title": title, "ways": rows}))
        try:
            with needs("plot"):
                plot(rows, title, options.out / "decode.png")
        except Missing as reason:
            print(f"without decode.png: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

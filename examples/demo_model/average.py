"""The mean of two runs' weights, as a run: `python average.py RUN RUN2 --share 0.65 --out RUN3`.

A run that extends another ends near it, and the weights between the two are often better than
either (Wortsman et al. 2022, "Model soups"). Optimisers and counts are those of the second run.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from checkpoint import save_checkpoint
from model import Clover, Config
from tokenizers import Tokenizer

STATE, TOKENIZER = "training_state.pt", "tokenizer.json"


def average(first: Path, second: Path, share: float, out: Path) -> None:
    """Writes state and checkpoint of the run between: `share` of the second's weights."""
    states = [torch.load(run / STATE, weights_only=True) for run in (first, second)]
    a, b = (state["model"] for state in states)
    mean = {name: torch.lerp(a[name], b[name], share) for name in b}
    out.mkdir(parents=True, exist_ok=True)
    torch.save({**states[1], "model": mean}, out / STATE)
    shutil.copyfile(second / TOKENIZER, out / TOKENIZER)
    model = Clover(Config())
    model.load_state_dict(mean)
    save_checkpoint(model, Tokenizer.from_file(str(out / TOKENIZER)), out / "checkpoint")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="of the second run")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    average(args.first, args.second, args.share, args.out)


if __name__ == "__main__":
    main()

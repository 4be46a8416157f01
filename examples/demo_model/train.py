"""Train the demo model: `python train.py --minutes 90 --out RUN`; repeat the command to resume.

The learning rate and the mixture follow the share of the time budget that is used, so an
interrupted run resumes where it was and a slower machine trains less, not differently.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from batches import Batch, Mix, Stream
from checkpoint import save_checkpoint
from model import Clover, Config
from optimiser import RATES, make_optimisers
from tokenizers import Tokenizer
from tokens import train_tokenizer
from torch import Tensor

SAVE_SECONDS = 300


def losses(model: Clover, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Next-token loss of the clean stream plus 1/t-weighted masked loss of the noisy one."""
    rows, balance = model(batch.clean, batch.noisy, batch.layout)
    t = batch.clean.shape[1]
    clean_rows = batch.next_weight > 0
    noisy_rows = batch.mask_weight > 0
    picked = torch.cat([rows[:, : t - 1][clean_rows], rows[:, t:][noisy_rows]])
    answer = batch.clean[:, batch.layout.prompt :].repeat(1, batch.layout.copies)
    target = torch.cat([batch.clean[:, 1:][clean_rows], answer[noisy_rows]])
    logits = model.lm_head(picked)
    nll = F.cross_entropy(logits, target, reduction="none")
    n = int(clean_rows.sum())
    count = batch.next_rows.sum()
    next_loss = (nll[:n] * batch.next_weight[clean_rows]).sum() / count
    mask_loss = (nll[n:] * batch.mask_weight[noisy_rows]).sum() / count
    right = (logits.argmax(-1) == target).float()
    shown = {
        "next": next_loss.item(),
        "mask": mask_loss.item(),
        "next_acc": right[:n][batch.next_rows[clean_rows]].mean().item(),
        "mask_acc": right[n:].mean().item() if len(right) > n else 1.0,
        "balance": balance.item(),
    }
    # the clean half is learnt first: half its weight once the masked half is what is wanting
    return 0.5 * next_loss + mask_loss + 0.01 * balance, shown


def schedule(share: float, peak: float) -> tuple[float, Mix]:
    """Learning rate and mixture at a share of the budget: warm up, hold, decay to zero."""
    warm = min(1.0, share / 0.01)
    lr = peak * warm * min(1.0, max(0.0, 1.0 - share) / 0.6)
    rise = min(1.0, share / 0.35)
    return lr, Mix(made_up=0.15 + 0.40 * rise, copying=0.30 - 0.22 * rise)


def prepare(out: Path, cfg: Config) -> Tokenizer:
    """The run's tokenizer, trained once."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tokenizer.json"
    if not path.exists():
        train_tokenizer(cfg.vocab_size).save(str(path))
    tok = Tokenizer.from_file(str(path))
    if tok.get_vocab_size() != cfg.vocab_size:
        raise SystemExit(f"{path}: {tok.get_vocab_size()} tokens, the model has {cfg.vocab_size}")
    return tok


def train(out: Path, minutes: float, rows: int, peak: float, seed: int) -> None:
    """Train for `minutes` of computing in all, saving on the way."""
    cfg = Config()
    tok = prepare(out, cfg)
    torch.manual_seed(seed)
    model = Clover(cfg)
    optimisers = make_optimisers(model)
    used, step, seen = 0.0, 0, 0
    last = out / "training_state.pt"
    if last.exists():
        state = torch.load(last, weights_only=True)
        model.load_state_dict(state["model"])
        for o, s in zip(optimisers, state["optimisers"], strict=True):
            o.load_state_dict(s)
        used, step, seen = state["used"], state["step"], state["seen"]
    stream = Stream(cfg, tok, seed + step, rows)
    mean: dict[str, float] = {}
    saved = tick = time.monotonic()
    for batch in stream:
        lr, stream.mix = schedule(used / (minutes * 60), peak)
        for o, share in zip(optimisers, RATES, strict=True):
            o.param_groups[0]["lr"] = lr * share
        loss, shown = losses(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optimisers:
            o.step()
            o.zero_grad()
        step, seen = step + 1, seen + batch.clean.numel() + batch.noisy.numel()
        for key, value in shown.items():
            mean[key] = 0.97 * mean.get(key, value) + 0.03 * value
        now = time.monotonic()
        used, tick = used + now - tick, now
        if step % 25 == 0:
            line = {"step": step, "minutes": round(used / 60, 1), "rows": seen}
            line |= {k: round(v, 4) for k, v in mean.items()}
            print(json.dumps(line), flush=True)
        done = used >= minutes * 60
        if done or now - saved > SAVE_SECONDS:
            states = [o.state_dict() for o in optimisers]
            kept = {"model": model.state_dict(), "optimisers": states}
            torch.save(kept | {"used": used, "step": step, "seen": seen}, last)
            save_checkpoint(model, tok, out / "checkpoint")
            saved = now
        if done:
            return


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--rows", type=int, default=6144, help="computed rows per step")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.out, args.minutes, args.rows, args.lr, args.seed)


if __name__ == "__main__":
    main()

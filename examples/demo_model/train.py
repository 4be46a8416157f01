"""Train the demo model: `python train.py --minutes 110 --out RUN`; repeat the command to resume.

A second run extends the first with the turns of the agent example:
`python train.py --minutes 100 --extend RUN --out RUN2`.

The learning rate and the mixture follow the share of the time budget that is used, so an
interrupted run resumes where it was and a slower machine trains less, not differently.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
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


def extension(share: float, peak: float) -> tuple[float, Mix]:
    """The same for a run that extends another: warm up again, decay to zero, half of it turns."""
    lr = 0.3 * peak * min(1.0, share / 0.02) * min(1.0, max(0.0, 1.0 - share) / 0.6)
    return lr, Mix(made_up=0.45, copying=0.04, episodes=0.5)


def prepare(out: Path, cfg: Config, extended: Path | None) -> None:
    """Puts the run's tokenizer in place: trained once, or that of the run it extends."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tokenizer.json"
    if not path.exists():
        source = Tokenizer.from_file(str(extended / path.name)) if extended else None
        (source or train_tokenizer(cfg.vocab_size)).save(str(path))
    tok = Tokenizer.from_file(str(path))
    if tok.get_vocab_size() != cfg.vocab_size:
        raise SystemExit(f"{path}: {tok.get_vocab_size()} tokens, the model has {cfg.vocab_size}")


@dataclass
class Run:
    """What a run has become so far; `used` counts seconds."""

    model: Clover
    optimisers: list[torch.optim.Optimizer]
    used: float = 0.0
    step: int = 0
    seen: int = 0

    def restore(self, path: Path) -> None:
        """Takes everything from a saved state."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for o, s in zip(self.optimisers, state["optimisers"], strict=True):
            o.load_state_dict(s)
        self.used, self.step, self.seen = state["used"], state["step"], state["seen"]

    def save(self, path: Path) -> None:
        """Writes a state, whole or not at all."""
        kept = {
            "model": self.model.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
            "used": self.used,
            "step": self.step,
            "seen": self.seen,
        }
        torch.save(kept, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def advance(self, batch: Batch, lr: float) -> dict[str, float]:
        """One step on the workers' mean gradient."""
        loss, shown = losses(self.model, batch)
        loss.backward()
        gradients = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        mean = (flat / dist.get_world_size()).split([g.numel() for g in gradients])
        for g, m in zip(gradients, mean, strict=True):
            g.copy_(m.view_as(g))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for o, share in zip(self.optimisers, RATES, strict=True):
            o.param_groups[0]["lr"] = lr * share
            o.step()
            o.zero_grad()
        self.step += 1
        self.seen += (batch.clean.numel() + batch.noisy.numel()) * dist.get_world_size()
        return shown


def train(rank: int, args: argparse.Namespace, meeting: str) -> None:
    """One worker: train for `minutes` in all; the first one saves on the way."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", meeting, rank=rank, world_size=args.workers)
    out, seconds = args.out, args.minutes * 60
    tok = Tokenizer.from_file(str(out / "tokenizer.json"))
    torch.manual_seed(args.seed)
    model = Clover(Config())
    run = Run(model, make_optimisers(model))
    last = out / "training_state.pt"
    plan = extension if args.extend else schedule
    if last.exists():
        run.restore(last)
    elif args.extend:
        run.restore(args.extend / last.name)
        run.used = 0.0
    stream = Stream(model.cfg, tok, args.seed + run.step * args.workers + rank, args.rows)
    lr, stream.mix = plan(run.used / seconds, args.lr)
    mean: dict[str, float] = {}
    clock = torch.tensor([run.used], dtype=torch.float64)
    saved = tick = time.monotonic()
    for batch in stream:
        for key, value in run.advance(batch, lr).items():
            mean[key] = 0.97 * mean.get(key, value) + 0.03 * value
        now = time.monotonic()
        clock += now - tick
        tick = now
        dist.broadcast(clock, 0)  # the first worker's clock decides for all
        run.used = clock.item()
        lr, stream.mix = plan(run.used / seconds, args.lr)
        if rank == 0 and run.step % 25 == 0:
            line = {"step": run.step, "minutes": round(run.used / 60, 1), "rows": run.seen}
            line |= {k: round(v, 4) for k, v in mean.items()}
            print(json.dumps(line), flush=True)
        done = run.used >= seconds
        if rank == 0 and (done or now - saved > SAVE_SECONDS):
            run.save(last)
            save_checkpoint(model, tok, out / "checkpoint")
            saved = now
        if done:
            break
    dist.destroy_process_group()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=110.0)
    parser.add_argument("--extend", type=Path, metavar="RUN", help="a finished run to go on from")
    parser.add_argument("--rows", type=int, default=4096, help="computed rows of a worker's step")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    # one thread each: threads inside such small products wait for each other most of the time
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    prepare(args.out, Config(), args.extend)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        torch.multiprocessing.spawn(train, (args, meeting), nprocs=args.workers)


if __name__ == "__main__":
    main()

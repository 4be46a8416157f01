"""Batches of two-stream training examples, grouped so that little padding is computed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from episodes import episode
from generate import copy_task, sample
from held_out import held_out_requests, normalise
from loosen import GOAL_SHARE, SHARE, loosen
from model import Config, Layout, make_layout
from tokenizers import Tokenizer
from tokens import chat_prompt
from torch import Tensor

# Block width → examples drawn before sorting by length; narrow blocks cost more time per example.
POOLS = {4: 384, 8: 576, 16: 768, 32: 1024}
EARLIER_SHARE = 0.12  # of the extension's examples follow an exchange about something else
COPIES = 2  # noisy copies of an answer: the prompt, half of all rows, is computed once for both
PROMPT_STEP = 16  # prompts are padded to a multiple of this (one chunk of the closed form)


@dataclass
class Batch:
    """Token ids, layout and per-row loss weights of one step."""

    clean: Tensor  # [B, T]
    noisy: Tensor  # [B, N]
    layout: Layout
    next_weight: Tensor  # [B, T - 1] weight of predicting clean[:, 1:]
    mask_weight: Tensor  # [B, N] 1/t at masked rows, 0 elsewhere
    next_rows: Tensor  # [B, T - 1] bool: answer rows (for the accuracy shown)


@dataclass
class Mix:
    """What the stream is made of; changed by the schedule while training runs."""

    made_up: float = 0.15
    copying: float = 0.3
    episodes: float = 0.0  # share of examples that are turns of the agent example


class Stream:
    """An endless stream of batches; `mix` may be changed at any time."""

    def __init__(self, cfg: Config, tok: Tokenizer, seed: int, rows: int):
        self.cfg, self.tok, self.rows = cfg, tok, rows
        self.rng = random.Random(seed)
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.mix = Mix()
        self.refused = held_out_requests()
        self.stop = tok.token_to_id("<|im_end|>")
        self.mask = tok.token_to_id("<|mask|>")

    def example(self) -> tuple[list[int], list[int]]:
        """Prompt ids and answer ids (stop token included), never of a held-out request."""
        while True:
            draw = self.turn if self.rng.random() < self.mix.episodes else self.single
            request, messages, answer = draw()
            if normalise(request) not in self.refused:
                break
        if self.mix.episodes and self.rng.random() < EARLIER_SHARE:
            messages = [*self.earlier(), *messages]
        prompt = self.tok.encode(chat_prompt(messages), add_special_tokens=False).ids
        return prompt, [*self.tok.encode(answer, add_special_tokens=False).ids, self.stop]

    def single(self) -> tuple[str, list[dict], str]:
        """A spoken request, as a chat, and its answer."""
        copying = self.rng.random() < self.mix.copying
        ex = copy_task(self.rng) if copying else sample(self.rng, self.mix.made_up, wide=True)
        request = ex.request
        if not copying and self.rng.random() < SHARE:
            values = [v for call in ex.calls for v in call["arguments"].values()]
            request = loosen(self.rng, request, values)
        return request, [{"role": "user", "content": request}], ex.answer

    def turn(self) -> tuple[str, list[dict], str]:
        """A goal, the chat up to one of the assistant's turns, and that turn."""
        ep = episode(self.rng, self.mix.made_up)
        before, answer = self.rng.choice(ep.turns)
        request = ep.request
        if self.rng.random() < GOAL_SHARE:
            request = loosen(self.rng, request, ep.values.values())
        return request, [{"role": "user", "content": request}, *ep.messages[1:before]], answer

    def earlier(self) -> list[dict]:
        """What a chat already holds when a new request comes: one that was met, whole, and none
        that is held out."""
        while True:
            if self.rng.random() < 0.5:
                messages = episode(self.rng, self.mix.made_up).messages
            else:
                ex = sample(self.rng, self.mix.made_up, wide=True)
                said = {"role": "assistant", "content": ex.answer}
                messages = [{"role": "user", "content": ex.request}, said]
            if normalise(messages[0]["content"]) not in self.refused:
                return messages

    def __iter__(self) -> Iterator[Batch]:
        while True:
            ready = []
            for width, count in POOLS.items():
                pool = [self.example() for _ in range(count)]
                pool.sort(key=lambda e: (-(-len(e[1]) // width), len(e[0])))
                ready += [(width, part) for part in self.cut(pool, width)]
            self.rng.shuffle(ready)
            for width, part in ready:
                yield self.make(part, width)

    def cut(self, pool: list, width: int) -> Iterator[list]:
        """Split a sorted pool into batches of about `rows` computed rows."""
        part: list = []
        for ex in pool:
            prompt = max([len(e[0]) for e in part] + [len(ex[0])])
            blocks = -(-len(ex[1]) // width)
            size = -(-prompt // PROMPT_STEP) * PROMPT_STEP + (1 + COPIES) * blocks * width
            if part and (len(part) + 1) * size > self.rows:
                yield part
                part = []
            part.append(ex)
        yield part

    def make(self, part: list, width: int) -> Batch:
        """Left-pad prompts, right-pad answers with stop tokens, mask the noisy copy."""
        blocks = max(-(-len(a) // width) for _, a in part)
        prompt = -(-max(len(p) for p, _ in part) // PROMPT_STEP) * PROMPT_STEP
        n = blocks * width
        size = (len(part), prompt + n)
        clean = torch.full(size, self.stop)
        valid = torch.zeros(size, dtype=torch.bool)
        weight = torch.zeros(size)  # of a row as a target
        for i, (p, a) in enumerate(part):
            clean[i, prompt - len(p) : prompt] = torch.tensor(p)
            clean[i, prompt : prompt + len(a)] = torch.tensor(a)
            valid[i, prompt - len(p) :] = True
            weight[i, prompt - len(p) + 1 : prompt] = 0.1
            weight[i, prompt : prompt + len(a)] = 1.0
            own = -(-len(a) // width) * width  # stop tokens to the end of the last block count, too
            weight[i, prompt + len(a) : prompt + own] = 0.2
        t = self.noise_levels(len(part) * blocks * COPIES).view(len(part), -1, 1)
        t = t.expand(-1, -1, width).reshape(len(part), -1)
        masked = torch.rand(t.shape, generator=self.torch_rng) < t
        answer = clean[:, prompt:].repeat(1, COPIES)
        noisy = torch.where(masked, torch.tensor(self.mask), answer)
        layout = make_layout(self.cfg, valid, prompt, blocks, width, COPIES)
        rows = (weight == 1.0)[:, 1:]
        mask_weight = masked * weight[:, prompt:].repeat(1, COPIES) / t / COPIES
        return Batch(clean, noisy, layout, weight[:, 1:], mask_weight, rows)

    def noise_levels(self, count: int) -> Tensor:
        """t stratified over (0.05, 1], a tenth of it at 1: the first preview sees only masks."""
        order = torch.randperm(count, generator=self.torch_rng)
        u = (order + torch.rand(count, generator=self.torch_rng)) / count
        return (0.05 + 1.05 * u).clamp(max=1.0)

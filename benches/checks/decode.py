"""The rows of decoding: what the techniques keep of the text, and what they buy."""

from __future__ import annotations

from checks.decode_demo import (
    balanced_keeps_the_answers,
    exact_runs_repeat,
    fused_commit,
    planner_against_a_sweep,
    rows_of_a_skipping_block,
    self_speculation,
)
from checks.decode_slice import balanced_against_exact, diffusion_against_autoregression

CHECKS = (
    balanced_keeps_the_answers,
    balanced_against_exact,
    self_speculation,
    diffusion_against_autoregression,
    planner_against_a_sweep,
    fused_commit,
    rows_of_a_skipping_block,
    exact_runs_repeat,
)

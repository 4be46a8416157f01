"""Quality of a packed model: likelihoods on real text, divergence from another model, tasks."""

from .report import Evaluation
from .run import evaluate

__all__ = ["Evaluation", "evaluate"]

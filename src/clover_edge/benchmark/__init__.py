"""Speed of a packed model on synthetic tokens, in records with llama-bench's field names."""

from .suite import STEPS, Benchmark, all_tests

__all__ = ["STEPS", "Benchmark", "all_tests"]

"""The rows of the foundation: install, core, export, and the demo model's quality."""

from __future__ import annotations

from checks.foundation_core import (
    commit_against_transformers,
    core_against_oracle,
    export_memory,
    import_of_the_package,
    threads_and_splits,
)
from checks.foundation_install import install_and_demo
from checks.foundation_model import (
    one_token_per_forward,
    quality_in_float,
    quality_when_packed,
    tokens_per_forward,
)

CHECKS = (
    install_and_demo,
    core_against_oracle,
    commit_against_transformers,
    quality_in_float,
    quality_when_packed,
    tokens_per_forward,
    one_token_per_forward,
    export_memory,
    threads_and_splits,
    import_of_the_package,
)

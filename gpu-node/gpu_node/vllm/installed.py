"""Whether this environment holds the vLLM that is spoken to."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from shared.config.vllm import PACKAGES, VLLM_VERSION
from shared.errors import OperatorError


class VllmError(OperatorError):
    """No vLLM can be run here as it is configured; the text says why, and what to do."""


def check_installed() -> None:
    """Raises `VllmError`. Asks the package's record: to import vLLM takes seconds."""
    for package in PACKAGES:
        try:
            found = version(package).split("+")[0]
        except PackageNotFoundError:
            continue
        if found != VLLM_VERSION:
            raise VllmError(f"{sys.executable} has vLLM {found}; Treadle speaks to {VLLM_VERSION}: run `make vllm-env`")
        return
    raise VllmError(f"{sys.executable} has no vLLM: run `make vllm-env`, and name its python as vllm.python")

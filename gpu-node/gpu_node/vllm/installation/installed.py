"""Whether this environment holds the vLLM that is spoken to."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from shared.config.nodes.vllm import PACKAGES, VLLM_VERSION
from shared.errors import OperatorError

LIBRARIES = {"libnuma.so.1": "libnuma1"}
"""What vLLM's build for processors loads and does not bring, with Debian's names; without it, nothing is served."""


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


def check_libraries(names: Sequence[str] = tuple(LIBRARIES)) -> None:
    """Where processors compute. Raises `VllmError`."""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError as error:
            package = LIBRARIES.get(name, name)
            raise VllmError(f"vLLM needs {name}, which is not here: install it (Debian: {package})") from error

"""Where what Triton compiles for tests is kept from one run to the next, beside the library of CPU kernels.

Triton names what it keeps by a digest of a kernel's source, of all that it is compiled with, and of the compiler.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from gpu_node.kernels.cpu.library.build import CACHE_ENV

MAX_KEPT = 500
"""Kernels, half a megabyte each; those of one state of the sources are 66."""
UNUSED_S = 86_400.0
"""What was used since is nobody's to remove: other processes may read it."""


def compiling_environment() -> dict[str, str]:
    """Of a process that compiles, and interprets nothing."""
    kept = Path(os.environ.get(CACHE_ENV) or Path.home() / ".cache" / "treadle" / "kernels") / "triton"
    kept.mkdir(parents=True, exist_ok=True)
    _forget_unused(kept)
    others = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return others | {"TRITON_CACHE_DIR": str(kept)}


def _forget_unused(kept: Path) -> None:
    used_s = {path: path.stat().st_mtime for path in kept.iterdir()}
    for path in sorted(used_s, key=used_s.__getitem__)[:-MAX_KEPT]:
        if time.time() - used_s[path] > UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)  # another process may do the same


def use(*, metadata_group: Mapping[str, str], **_: object) -> None:
    """A listener of Triton's compiler: what this process has asked for is not forgotten."""
    for folder in {Path(path).parent for path in metadata_group.values()}:
        os.utime(folder)

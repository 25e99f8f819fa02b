"""Where what Triton compiles for tests is kept from one run to the next, beside the library of CPU kernels.

Triton names what it keeps by a digest of a kernel's source, of all that it is compiled with, and of the compiler.
"""

from __future__ import annotations

import os
from pathlib import Path

from gpu_node.kernels.cpu.build import CACHE_ENV


def compiling_environment() -> dict[str, str]:
    """Of a process that compiles, and interprets nothing."""
    kept = Path(os.environ.get(CACHE_ENV) or Path.home() / ".cache" / "treadle" / "kernels") / "triton"
    others = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return others | {"TRITON_CACHE_DIR": str(kept)}

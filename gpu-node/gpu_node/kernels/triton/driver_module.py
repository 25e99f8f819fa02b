"""The module by which Triton talks to CUDA's driver, built beforehand where a machine has no compiler.

Triton (3.7) compiles one C file where it first launches: backends/nvidia/driver.c of its own package, the same for all
kernels and devices. Kernels need no C compiler: ptxas, which comes in Triton's wheel, makes them. So an image without a
compiler brings that module (gpu-node/Dockerfile.cuda), and `LIBRARY_ENV` names the file.
"""

from __future__ import annotations

import os
import shutil

import triton

LIBRARY_ENV = "TREADLE_TRITON_DRIVER"

_NAME = "cuda_utils"


def can_be_had() -> bool:
    """Whether the module is here, or a compiler where Triton looks for one."""
    return any(os.environ.get(name) for name in (LIBRARY_ENV, "CC")) or any(map(shutil.which, ("gcc", "clang")))


def use_built() -> None:
    """Let Triton take the module that `LIBRARY_ENV` names instead of compiling it; without the variable, nothing."""
    if path := os.environ.get(LIBRARY_ENV):
        triton.knobs.build.impl = lambda name, *_: _built(name, path)


def _built(name: str, path: str) -> str:
    if name != _NAME:
        raise RuntimeError(f"Triton asks for {name}, and {LIBRARY_ENV} holds {_NAME}; unset it, and set CC")
    return path

"""An environment as `treadle[gpu-node]` makes it: what is installed here, but for torch and what comes with it."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from tests.docker.daemon import ROOT

PYTHON = (sys.executable, "-S")  # without its own packages: those of PYTHONPATH alone
_LEFT_OUT = ("torch", "triton", "transformers")


def python_path(folder: Path) -> str:
    """PYTHONPATH with links to the other packages in ``folder``."""
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if package.name.partition("-")[0] not in _LEFT_OUT:
            (folder / package.name).symlink_to(package)
    return os.pathsep.join(map(str, (ROOT, ROOT / "gpu-node", folder)))

"""Compile the CPU kernels before they are used: ``python -m gpu_node.kernels.cpu [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

from gpu_node.kernels.cpu.library.build import CompilerError, compile_library, find_compiler, library_path, sources


def main() -> int:
    """Compile into the folder given as the only argument (for the build stage of an image), else into the cache."""
    try:
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
            folder.mkdir(parents=True, exist_ok=True)
            compile_library(folder / "libtreadle_cpu.so", find_compiler(), sources())
        else:
            library_path()
    except CompilerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

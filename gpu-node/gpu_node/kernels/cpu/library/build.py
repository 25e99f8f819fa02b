"""Builds the library of CPU kernels at its first use, into a cache folder named by a digest of what it is made of.

At first use and not when the package is installed: an editable install would keep the library of sources that have
changed since, and a wheel would be tied to one platform. An image without a compiler carries the library instead: its
build stage runs ``python -m gpu_node.kernels.cpu FOLDER``, and TREADLE_CPU_LIBRARY names the file at run time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared.errors import OperatorError

LIBRARY_ENV = "TREADLE_CPU_LIBRARY"
COMPILER_ENV = "CXX"
CACHE_ENV = "TREADLE_KERNELS_DIR"
COMPILE_TIMEOUT_S = 300

_FLAGS = (
    "-std=gnu++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-pthread",
    "-Wall",
    "-Wextra",
)
_AVX512_FLAGS = ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vbmi", "-mavx512bf16")
_LEVEL = "level_"
_X86_FLAGS = {  # nothing else may use these instructions: the machine may lack them
    "level_avx2.cpp": ("-mavx2", "-mfma", "-mprefer-vector-width=256"),
    "level_avx512.cpp": _AVX512_FLAGS,
    "level_amx.cpp": (*_AVX512_FLAGS, "-mamx-tile", "-mamx-bf16"),
}


class CompilerError(OperatorError, RuntimeError):
    """The kernels cannot be compiled on this machine."""


def library_path() -> Path:
    """The library of the sources as they are now, compiled if it is not there yet."""
    named = os.environ.get(LIBRARY_ENV)
    if named:
        return Path(named)
    compiler = find_compiler()
    files = sources()
    folder = _cache_folder() / _digest(files, compiler)
    library = folder / "libtreadle_cpu.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # engines of one machine start together; the first compiles for all
            if not library.is_file():
                compile_library(library, compiler, files)
    return library


def kernels_digest() -> str:
    """Of all that the library is made of; of the library itself where it is named."""
    named = os.environ.get(LIBRARY_ENV)
    return _digest([Path(named)], "") if named else _digest(sources(), find_compiler())


def compile_library(library: Path, compiler: str, sources: list[Path]) -> None:
    """Compile and link; the library appears under its name only when it is whole."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        folder = Path(scratch)
        units = _units(sources, folder)

        def compiled(unit: Path) -> str:
            target = str(folder / f"{unit.stem}.o")
            _call(compiler, *_FLAGS, *units[unit], "-c", str(unit), "-o", target)
            return target

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as cores:
            objects = list(cores.map(compiled, units))
        whole = folder / library.name
        _call(compiler, "-shared", "-pthread", *objects, "-o", str(whole))
        whole.rename(library)


def _units(sources: list[Path], scratch: Path) -> dict[Path, tuple[str, ...]]:
    """What is compiled at a time, the longest first, and its flags: each level of instructions, and all the rest.

    The rest is one unit: each file alone would read the same headers again, which takes three times as long.
    """
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    files = [path for path in sources if path.suffix == ".cpp"]
    rest = scratch / "rest.cpp"
    rest.write_text("".join(f'#include "{path}"\n' for path in files if not path.name.startswith(_LEVEL)))
    levels = [path for path in files if path.name.startswith(_LEVEL)]
    return {rest: ()} | {path: _X86_FLAGS.get(path.name, ()) if is_x86 else () for path in levels}


def _call(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)  # noqa: S603
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error:" in line] or error.stderr.splitlines()
        text = lines[0] if lines else f"exit status {error.returncode}"
        raise CompilerError(f"the CPU kernels do not compile with {command[0]}: {text}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"the CPU kernels do not compile with {command[0]}: {error}") from error


def find_compiler() -> str:
    """The compiler named by CXX, else the first there is; `CompilerError` says how to get one."""
    wanted = os.environ.get(COMPILER_ENV)
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    raise CompilerError(
        f"no C++ compiler for the CPU kernels{f' ({COMPILER_ENV}={wanted})' if wanted else ''}: install g++ "
        f"(Debian: apt-get install g++), or name a compiler in {COMPILER_ENV} or a built library in {LIBRARY_ENV}"
    )


def sources() -> list[Path]:
    """C++ files beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parents[3]
    for folder in (package / "csrc", package.parent / "csrc"):
        if folder.is_dir():
            return sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h"))
    raise CompilerError(f"the sources of the CPU kernels are missing: no folder csrc in or beside {package}")


def _cache_folder() -> Path:
    named = os.environ.get(CACHE_ENV)
    return Path(named) if named else Path.home() / ".cache" / "treadle" / "kernels"


def _digest(sources: list[Path], compiler: str) -> str:
    digest = hashlib.sha256(repr((compiler, platform.machine(), _FLAGS, _X86_FLAGS)).encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]

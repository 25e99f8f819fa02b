"""Triton's link to the driver is built by the image's own command, and Triton takes it without a compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from gpu_node.kernels.triton import driver_module

DOCKERFILE = Path(__file__).parents[4] / "gpu-node" / "Dockerfile.cuda"
SOURCES = Path(triton.__file__).parent / "backends" / "nvidia"
LOAD = """
from pathlib import Path
from triton.runtime.build import compile_module_from_src
from gpu_node.kernels.triton.driver_module import use_built
use_built()
source = Path({source!r}).read_text()
print(compile_module_from_src(source, {name!r}).launch.__name__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the command of the image has run."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").symlink_to(SOURCES / "driver.c")
    (folder / "include").symlink_to(SOURCES / "include")
    stage = DOCKERFILE.read_text().partition(" AS driver\n")[2].partition("\nFROM ")[0]
    (command,) = re.findall(r"^RUN ((?:.*\\\n)*.*)$", stage, re.M)
    binaries = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", command.replace("cd /build", f"cd {folder}")], check=True, env={"PATH": binaries})
    return folder


@pytest.fixture(scope="module")
def driver(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library that has the name of the driver's and all that the module wants, which does nothing."""
    folder = tmp_path_factory.mktemp("host")
    wanted = subprocess.run(["nm", "-D", str(built / "cuda_utils.so")], check=True, capture_output=True, text=True)
    names = re.findall(r"U (cu\w+)", wanted.stdout)
    (folder / "driver.c").write_text("\n".join(f"void {name}(void) {{}}" for name in names))
    command = ["gcc", "-shared", "-o", "libcuda.so.1", "driver.c"]
    subprocess.run(command, check=True, cwd=folder)
    return folder


def load(built: Path, driver: Path, cache: Path, name: str = "cuda_utils") -> subprocess.CompletedProcess[str]:
    """In a process that finds no compiler."""
    environment = {
        **{name: os.environ[name] for name in ("PYTHONPATH", "HOME") if name in os.environ},
        "PATH": str(Path(sys.executable).parent),
        "LD_LIBRARY_PATH": str(driver),
        "TRITON_CACHE_DIR": str(cache),
        driver_module.LIBRARY_ENV: str(built / "cuda_utils.so"),
    }
    code = LOAD.format(source=str(SOURCES / "driver.c"), name=name)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_triton_loads_the_module_and_keeps_it(built: Path, driver: Path, tmp_path: Path) -> None:
    done = load(built, driver, tmp_path)
    assert (done.returncode, done.stdout) == (0, "launch\n"), done.stderr
    assert [path.name.partition(".")[0] for path in tmp_path.glob("*/*")] == ["cuda_utils"]


def test_it_names_the_drivers_library_which_comes_from_the_host(built: Path) -> None:
    names = re.findall(rb"lib[a-z]+\.so\.[0-9]+", (built / "cuda_utils.so").read_bytes())
    assert b"libcuda.so.1" in names


def test_whatever_else_triton_would_compile_is_refused(built: Path, driver: Path, tmp_path: Path) -> None:
    done = load(built, driver, tmp_path, "launcher")
    assert done.returncode == 1
    assert "Triton asks for launcher, and TREADLE_TRITON_DRIVER holds cuda_utils" in done.stderr


@pytest.mark.parametrize(
    ("environment", "has_it"),
    [({}, False), ({"CC": "/opt/cc"}, True), ({driver_module.LIBRARY_ENV: "/opt/treadle/lib/cuda_utils.so"}, True)],
)
def test_where_it_can_be_had(environment: dict[str, str], has_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert driver_module.can_be_had() is has_it

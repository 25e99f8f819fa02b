"""ThreadSanitizer on lanes: no race with the events between them, and races where these are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_node.kernels.cpu.library.build import COMPILER_ENV, LIBRARY_ENV, find_compiler, library_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # all of the library is compiled for it
COMPILER = Path(__file__).with_name("g++_thread_sanitizer_O1.sh")  # a library is cached by its compiler's name
OPTIONS = "ignore_noninstrumented_modules=1:exitcode=0:history_size=4"


@pytest.fixture(scope="module")
def sanitizer() -> str:
    """The library that the process has to begin with."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    found = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip("no ThreadSanitizer on this machine")
    return path


@pytest.fixture(scope="module")
def library(sanitizer: str) -> Path:
    """The sources as they are, compiled to be listened to: once, beside the library that is served with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(LIBRARY_ENV, raising=False)
        patch.setenv(COMPILER_ENV, str(COMPILER))
        assert find_compiler() == str(COMPILER)
        return library_path()


def races(library: Path, sanitizer: str, events: str, *families: str) -> list[str]:
    """Those that are reported, each with what was done."""
    environment = {**os.environ, LIBRARY_ENV: str(library), "LD_PRELOAD": sanitizer, "TSAN_OPTIONS": OPTIONS}
    command = [sys.executable, "-m", "tests.gpu_node.executors.cpu.sanitized_lanes", events, *families]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"done: {family}" for family in families], done.stderr
    return done.stderr.split("WARNING: ThreadSanitizer: data race")[1:]


def test_lanes_have_no_races(library: Path, sanitizer: str) -> None:
    assert races(library, sanitizer, "with", "llama3", "gpt2", "mixtral") == []


def test_lanes_that_ask_another_device_have_no_races(library: Path, sanitizer: str) -> None:
    assert races(library, sanitizer, "linked", "llama3", "mixtral") == []


def test_lanes_without_events_have_some(library: Path, sanitizer: str) -> None:
    assert races(library, sanitizer, "without", "llama3") != []

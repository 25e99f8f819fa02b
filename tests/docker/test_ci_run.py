"""`.ci/run` with commands that do nothing in the place of `make` and `docker`: what fails the whole run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docker.daemon import ROOT

MAKE = """#!/bin/sh
echo "$1" >> "$TARGETS"
case "$1" in {target}) exec {command} ;; esac
"""


def run(
    folder: Path, target: str, command: str, docker_status: int = 0, **environment: str
) -> tuple[int, list[str], str]:
    """Status, the targets that were made, and what was said, where one target is made by a command of its own."""
    programs = {"make": MAKE.format(target=target, command=command), "docker": f"#!/bin/sh\nexit {docker_status}\n"}
    programs |= {"g++": "#!/bin/sh\n", "dockerd": "#!/bin/sh\nexit 1\n"}
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    targets = folder / "targets"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {"TREADLE_CI_VLLM": "0"} | environment | {"PATH": path, "TARGETS": str(targets), "DOCKER_TEST_S": "1"}
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, targets.read_text().split(), done.stdout


def test_all_is_made_in_order(tmp_path: Path) -> None:
    status, targets, _ = run(tmp_path, "none", "true")
    assert (status, targets) == (0, ["setup-dev", "check", "test-docker", "test"])


@pytest.mark.parametrize(("command", "status"), [("true", 0), ("sh -c 'exit 3'", 3)])
def test_vllm_is_tested_unless_it_is_left_out(tmp_path: Path, command: str, status: int) -> None:
    found, targets, _ = run(tmp_path, "test-vllm", command, TREADLE_CI_VLLM="")
    assert (found, targets) == (status, ["setup-dev", "check", "test-docker", "vllm-wheel", "test-vllm", "test"])


@pytest.mark.parametrize(("asked", "status"), [("", 0), ("1", 1)])
def test_where_vllm_cannot_be_had_that_is_said(tmp_path: Path, asked: str, status: int) -> None:
    found, targets, said = run(tmp_path, "vllm-wheel", "false", TREADLE_CI_VLLM=asked)
    assert "NODES WITH VLLM ARE NOT TESTED" in said
    assert (found, targets) == (status, ["setup-dev", "check", "test-docker", "vllm-wheel", "test"])


def test_containers_that_take_too_long_fail_the_run(tmp_path: Path) -> None:
    status, targets, said = run(tmp_path, "test-docker", "sleep 30")
    assert "not through within 1 s: they failed" in said
    assert (status, targets[-1]) == (124, "test")


@pytest.mark.parametrize("target", ["test-docker", "test"])
def test_what_fails_fails_the_run(tmp_path: Path, target: str) -> None:
    status, targets, _ = run(tmp_path, target, "sh -c 'exit 2'")
    assert (status, targets[-1]) == (2, "test")


def test_what_the_checks_find_ends_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, "check", "sh -c 'exit 2'")[:2] == (2, ["setup-dev", "check"])

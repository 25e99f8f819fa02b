"""Inputs that once broke a rule, in a folder for each target: fed first, and by a test of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.campaign import Finding
from tests.fuzz.target import Target

FOLDER = Path(__file__).with_name("corpus")


def folder_of(target: str, root: Path = FOLDER) -> Path:
    """Where the inputs of a target lie."""
    return root / re.sub(r"\W+", "_", target)


def kept(target: Target) -> Iterator[tuple[str, bytes]]:
    """Its inputs, each with a short name."""
    for path in sorted(folder_of(target.name).glob("*.bin")):
        yield path.stem, path.read_bytes()


def keep(finding: Finding, root: Path = FOLDER) -> Path:
    """Write a finding down: its input, and beside it what was wrong."""
    folder = folder_of(finding.target, root)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.digest}.bin"
    path.write_bytes(finding.data)
    return path

"""Rows that are measured once: a benchmark that was stopped goes on behind the last row that it has kept.

The file has a JSON object a line, written when a row is there. A row is kept for its question, which names all that is
simulated, and for the commit of the code that answered it; docs, tests and the results themselves are no part of that.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CODE = (".", ":(exclude)docs", ":(exclude)tests", ":(exclude)benchmarks/data/qlm")

Row = dict[str, Any]


class KeptRows:
    """Owns the file; without one, every row is measured."""

    def __init__(self, path: Path | None, commit: str) -> None:
        """`SystemExit` where the file cannot be used, or the code is that of no commit."""
        if path is not None and not commit:
            raise SystemExit("--rows: the code is not what was committed, so its rows could not be told apart: commit")
        self._path = path
        self._commit = commit
        self._rows = {} if path is None else _read(path, commit)

    @classmethod
    def of_this_code(cls, path: Path | None) -> KeptRows:
        """What the code as it is has answered."""
        return cls(path, code_commit() if path is not None else "")

    def has(self, question: str) -> bool:
        """Whether there is a row of it."""
        return question in self._rows

    def measured(self, question: str, measure: Callable[[], Row]) -> Row:
        """The row that is kept, else what is measured now."""
        if question not in self._rows:
            row = self._rows[question] = measure()
            if self._path is not None:
                line = json.dumps({"commit": self._commit, "question": question, "row": row})
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        return self._rows[question]


def _read(path: Path, commit: str) -> dict[str, Row]:
    """Rows of the commit, by their questions; none where there is no file yet."""
    rows: dict[str, Row] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"--rows {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            kept = json.loads(line)
            if kept["commit"] == commit:
                rows[kept["question"]] = kept["row"]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"--rows {path}, line {number} is no row: delete it, or name another file") from error
    return rows


def code_commit(root: Path = ROOT) -> str:
    """The last commit that changed the code; ``""`` outside of a repository, or where it has been edited since."""
    changes = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *CODE)
    return "" if changes is None or changes else _git(root, "log", "-1", "--format=%h", "--", *CODE) or ""


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None

"""Programs with one change, and which of them tests notice: on a file and tests that are made here."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def changes(source: str, *ignored: str) -> list[str]:
    return [mutant.change for mutant in importlib.import_module("mutants").mutants(source, ignored)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", ["a + b -> a - b"]),
        ("a / b", ["a / b -> a * b"]),
        ("a ** b", ["a ** b -> a * b"]),
        ("a += b", ["a += b -> a -= b"]),
        ("a < b <= c", ["a < b <= c -> a <= b <= c", "a < b <= c -> a < b < c"]),
        ("a is None", ["a is None -> a is not None"]),
        ("a and b", ["a and b -> a or b"]),
        ("not a", ["not a -> a"]),
        ("-a", ["-a -> a"]),
        ("a if b else c", ["a if b else c -> a if not b else c"]),
        ("f(True)", ["True -> False"]),
        ("a = 0.05", ["0.05 -> 0.1", "0.05 -> 0.0"]),
        ("a = 0", ["0 -> 1"]),
        ("max(a, b)", ["max(a, b) -> min(a, b)"]),
        ("def f():\n    return a", ["return a -> return None"]),
        ("while a:\n    b()", []),
        ("if a:\n    b()", ["if a: -> if not a:"]),
        ('"""1 + 1"""\na: 1 = f"{1 + 1}"', []),
        ("@f(1)\ndef g(a: 1) -> 1:\n    pass", []),
    ],
)
def test_each_change_is_one_mistake(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


def test_a_mutant_is_a_whole_program_with_nothing_else_changed() -> None:
    source = "A = 1\n\ndef f(a):\n    return a + A\n"
    found = importlib.import_module("mutants").mutants(source)
    assert [(mutant.line, mutant.change) for mutant in found] == [
        (1, "1 -> 2"),
        (1, "1 -> 0"),
        (4, "return a + A -> return None"),
        (4, "a + A -> a - A"),
    ]
    assert found[3].source == "A = 1\n\ndef f(a):\n    return a - A"


def test_functions_that_are_no_scores_stay_as_they_are() -> None:
    assert changes("def main():\n    return 1\n\ndef f():\n    return g", "main") == ["return g -> return None"]


@pytest.mark.slow
def test_what_tests_do_not_look_at_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of ``a - b``, twice as much and nothing it is seen that they are wrong; of a bound at which nobody tests, not."""
    mutation: Any = importlib.import_module("mutation")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "added.py").write_text(
        "def added(a, b):\n    return a + b\n\ndef is_much(a):\n    return a > 5\n"
    )
    (tmp_path / "test_added.py").write_text(
        "import sys\nsys.path.insert(0, 'benchmarks')\nfrom added import added, is_much\n"
        "def test_added():\n    assert added(2, 3) == 5\n    assert is_much(20)\n    assert not is_much(4)\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "TARGETS", {"benchmarks/added.py": mutation.Target(["test_added.py"], [])})
    monkeypatch.setattr(sys, "argv", ["mutation", "--json"])
    mutation.main()
    found = json.loads(capsys.readouterr().out)["files"]["benchmarks/added.py"]
    assert {name: found[name] for name in ("mutants", "tested", "killed", "survived")} == {
        "mutants": 6,
        "tested": 6,
        "killed": 4,
        "survived": ["line 5: 5 -> 10", "line 5: a > 5 -> a >= 5"],
    }


def test_every_file_and_test_that_is_named_is_there() -> None:
    for file, target in importlib.import_module("mutation").TARGETS.items():
        assert (ROOT / file).is_file()
        assert [test for test in target.tests if not (ROOT / test).exists()] == []


def test_a_file_without_tests_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mutation", "cli/main.py"])
    with pytest.raises(SystemExit):
        importlib.import_module("mutation").main()
    assert "no tests are named for cli/main.py" in capsys.readouterr().err

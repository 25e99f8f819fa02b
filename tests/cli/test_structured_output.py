"""benchmarks/structured_output.py without measuring: what is made of the seconds."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("structured_output")


def test_rates_are_of_medians_and_ratios_to_free(script: Any) -> None:
    taken = {"free": [9.0, 2.0, 1.0], "held": [2.5, 2.5, 0.1], "mixed": [1.6, 4.0, 1.0]}
    assert script.rates(taken, num_tokens=100) == {
        "free_tok_s": 50.0,
        "held_tok_s": 40.0,
        "mixed_tok_s": 62.5,
        "held_ratio": 0.8,
        "mixed_ratio": 1.25,
    }


def test_a_new_schema_adds_the_difference_of_medians(script: Any) -> None:
    taken = {"free": [0.010, 0.030, 0.011], "new": [0.0155, 0.0135, 0.090]}
    assert script.first_token(taken) == {"first_token_ms": 11.0, "first_token_extra_ms": 4.5}


def test_another_engine_stands_beside_ours(script: Any) -> None:
    assert script.beside({"treadle": {"a": 1.0}}) == {"a": 1.0}
    assert script.beside({"treadle": {"a": 1.0}, "peer": {"a": 2.0}}) == {"a": 1.0, "peer": {"a": 2.0}}


def test_no_property_is_in_two_new_schemas(script: Any) -> None:
    first, second = (json.loads(script.new_schema(number))["items"] for number in (1, 2))
    assert first["required"] == list(first["properties"]) == ["name_1", "born_1", "works_1", "kind_1"]
    assert not set(first["properties"]) & set(second["properties"])
    assert first["properties"]["kind_1"] == second["properties"]["kind_2"]


def test_a_peer_that_is_not_there_is_told_at_once(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["structured_output.py", "--peer", "nowhere"])
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert caught.value.code == 2
    assert "nowhere is no virtual environment; benchmarks/peer.sh makes one" in capsys.readouterr().err

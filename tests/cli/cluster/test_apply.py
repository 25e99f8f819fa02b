"""What `treadle apply` refuses, and what it makes of what the gateway says while it takes models and keys over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.cluster.apply import GatewayAnswers, check_change, told_by_processes
from cli.config.yaml import process_yaml
from cli.errors import CliError
from shared.config.config import ClusterConfig

KEYS = [{"key": f"key of {name}", "tenant": name} for name in ("acme", "bolt")]
A = {"name": "a", "source": "/a.gguf"}


def process(*served: str, problem: str = "", keys_problem: str = "", is_leaving: bool = False) -> dict[str, Any]:
    return {
        "is_leaving": is_leaving,
        "models": {"served": list(served), "problem": problem},
        "keys": {"num_keys": 2, "problem": keys_problem},
    }


def text(*models: dict[str, Any], **sections: Any) -> str:
    return process_yaml(ClusterConfig.model_validate({"models": list(models)} | sections))


def refused(tmp_path: Path, running: str, wanted: str, *served: str) -> str:
    """Why one is not applied where the other one runs; ``""`` where it is."""
    file = tmp_path / "config.yaml"
    file.write_text(running)
    try:
        check_change(file, wanted, [list(served)] if served else [])
    except CliError as error:
        return str(error)
    return ""


def test_nothing_is_taken_over_until_every_process_has_answered() -> None:
    assert told_by_processes({}) == GatewayAnswers("", [], [])
    assert told_by_processes(process("a", "b")) == GatewayAnswers("", [["a", "b"]], [2])
    silent = {"is_leaving": False}
    assert told_by_processes({"workers": [process("a"), silent]}) == GatewayAnswers("", [], [2])
    assert told_by_processes({"workers": [process("a"), silent | {"is_leaving": True}]}) == GatewayAnswers(
        "", [["a"]], [2]
    )
    assert told_by_processes({"workers": []}) == GatewayAnswers("", [], [])


def test_what_is_wrong_at_one_of_them_is_told() -> None:
    workers = [process("a"), process("a", problem="b.gguf does not exist")]
    assert told_by_processes({"workers": workers}).problem == "b.gguf does not exist"
    assert told_by_processes(process("a", keys_problem="no such class")).problem == "no such class"


def test_keys_that_are_gone_would_open_the_gateway(tmp_path: Path) -> None:
    assert "nothing was applied: there are no keys any more" in refused(tmp_path, text(A, keys=KEYS), text(A))
    assert refused(tmp_path, text(A), text(A, keys=KEYS)) == ""
    assert refused(tmp_path, text(A, keys=KEYS), text(A, keys=KEYS[:1])) == ""


@pytest.mark.parametrize(("served", "is_held"), [(("a",), True), ((), True), (("b",), False)])
def test_what_no_gateway_serves_may_be_corrected(tmp_path: Path, served: tuple[str, ...], is_held: bool) -> None:
    found = refused(tmp_path, text(A), text(A | {"weights": "int8"}), *served)
    assert ("its weights changed" in found) == is_held

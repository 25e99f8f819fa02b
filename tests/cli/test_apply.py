"""What `treadle apply` makes of what the gateway says while it takes models over."""

from __future__ import annotations

from typing import Any

from cli.cluster.apply import told_by_processes


def process(*served: str, problem: str = "", is_leaving: bool = False) -> dict[str, Any]:
    return {"is_leaving": is_leaving, "models": {"served": list(served), "problem": problem}}


def test_nothing_is_taken_over_until_every_process_has_answered() -> None:
    assert told_by_processes({}) == ("", [])
    assert told_by_processes(process("a", "b")) == ("", [["a", "b"]])
    silent = {"is_leaving": False}
    assert told_by_processes({"workers": [process("a"), silent]}) == ("", [])
    assert told_by_processes({"workers": [process("a"), silent | {"is_leaving": True}]}) == ("", [["a"]])
    assert told_by_processes({"workers": []}) == ("", [])


def test_what_is_wrong_at_one_of_them_is_told() -> None:
    workers = [process("a"), process("a", problem="b.gguf does not exist")]
    assert told_by_processes({"workers": workers}) == ("b.gguf does not exist", [["a"], ["a"]])

"""When a model that a node cannot load ends a start."""

from __future__ import annotations

from cli.cluster.start.broken_models import BrokenModels


def test_a_model_that_no_kind_of_node_can_load_is_hopeless() -> None:
    broken = BrokenModels({"node-0": "a10", "node-1": "a10", "node-2": "a100"})
    assert broken.hopeless() == {}
    broken.note("node-1", {"large": "26 GB of weights"})
    assert broken.hopeless() == {}, "it may fit on the other kind"
    broken.note("node-2", {"large": "cut off"})
    assert broken.hopeless() == {"node-1": "26 GB of weights"}, "node-0 is of a kind that has failed"


def test_models_are_told_apart() -> None:
    broken = BrokenModels({"node-0": "a10", "node-1": "a100"})
    broken.note("node-0", {"large": "26 GB of weights", "odd": "no such type"})
    broken.note("node-1", {"odd": "no such type"})
    assert broken.hopeless() == {"node-0": "no such type"}


def test_all_reasons_of_a_node_are_told() -> None:
    broken = BrokenModels({"node-0": "cpu"})
    broken.note("node-0", {"a": "cut off", "b": "no such type"})
    assert broken.hopeless() == {"node-0": "cut off; no such type"}

"""Adapters that come to a model of a node with vLLM and leave it: under its requests, or when it has none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpu_node.vllm.serving.core_residents import Loaded
from gpu_node.vllm.serving.engine import VllmEngine
from gpu_node.vllm.words.border import ModelRefusedError
from shared.config.engines.adapters import AdapterRoom, AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.nodes.step_cost import StepCost
from tests.gpu_node.vllm.made import OPTIONS, Starter, adapters, payload, step

M = ModelSpec(name="m", source="none")


def having(**ranks: int) -> ModelSpec:
    return replace(M, adapters=adapters(**ranks))


def wanting(reason: str) -> str:
    return f"{reason} (models[].adapter_room); it comes when the model has no requests here"


@pytest.fixture
def starter() -> Starter:
    return Starter(max_rank=64)


@pytest.fixture
def engine(starter: Starter) -> VllmEngine:
    """Its model has an adapter of rank 8, and a request for it."""
    one = VllmEngine(starter, OPTIONS)
    assert one.load_model(having(legal=8)).model.adapters == ("legal",)
    assert one.add(payload("r", adapter="legal")) == []
    return one


def names(loaded: Loaded) -> tuple[str, ...]:
    assert loaded.broken_adapters == loaded.late_adapters == {}
    return loaded.model.adapters


def test_what_has_room_comes_under_requests(engine: VllmEngine, starter: Starter) -> None:
    assert [chunk.error for chunk in engine.add(payload("s", adapter="rhymes"))] == [
        "'m' has no adapter 'rhymes' at this node"
    ]
    loaded = engine.load_model(having(legal=8, rhymes=4))
    assert names(loaded) == ("legal", "rhymes")
    assert loaded.model.adapter_layouts == (", adapter legal", ", adapter rhymes")
    assert engine.add(payload("s", adapter="rhymes")) == []
    assert [asked.adapter for asked in starter.cores["m"].running] == ["legal", "rhymes"]
    assert starter.num_started == 1
    assert [chunk.token_ids for chunk in engine.take("m", step({"0": 7}, begun=["0"]))] == [[7]]
    engine.check()


def test_files_are_read_beside_steps_only_where_something_else_is_wanted(engine: VllmEngine) -> None:
    assert engine.reader(having(legal=8)) is None
    assert engine.reader(ModelSpec(name="other", source="none")) is None
    read = engine.reader(having(legal=8, rhymes=4))
    assert read is not None
    assert names(engine.load_model(having(legal=8, rhymes=4), read())) == ("legal", "rhymes")


def test_they_come_one_by_one_so_that_steps_are_told_between(engine: VllmEngine) -> None:
    spec = having(odd=4, one=4, legal=8, two=4)
    read = engine.reader(spec)
    assert read is not None
    loaded = engine.load_model(spec, read())
    had = [loaded.model.adapters]
    while loaded.rest is not None:
        loaded = engine.load_model(spec, loaded.rest)
        had.append(loaded.model.adapters)
    assert had == [("legal",), ("legal", "one"), ("legal", "one", "two")]
    assert loaded.broken_adapters == {"odd": "vLLM knows no such module"}


def test_an_adapter_that_requests_are_for_stays_whatever_is_said(engine: VllmEngine) -> None:
    assert set(names(engine.load_model(having(rhymes=4)))) == {"legal", "rhymes"}
    engine.abort(["r"])
    assert names(engine.load_model(having(rhymes=4))) == ("rhymes",)


def test_what_cannot_be_used_is_told_and_the_others_come(engine: VllmEngine) -> None:
    spec = having(legal=8, odd=4, rhymes=4)
    loaded = engine.load_model(replace(spec, adapters=(*spec.adapters, AdapterSpec("gone", "missing"))))
    assert loaded.model.adapters == ("legal", "rhymes")
    assert loaded.broken_adapters == {"odd": "vLLM knows no such module", "gone": "gone does not exist"}
    assert loaded.late_adapters == {}


def test_a_larger_one_waits_until_the_model_has_no_requests_which_then_begins_anew(
    engine: VllmEngine, starter: Starter
) -> None:
    old = starter.cores["m"]
    loaded = engine.load_model(having(legal=8, large=32, rhymes=4))
    assert loaded.model.adapters == ("legal", "rhymes")
    assert loaded.broken_adapters == {}
    assert loaded.late_adapters == {
        "large": wanting("adapter 'large' is of rank 32, and its model was started for ranks up to 8")
    }
    engine.reset()
    assert names(engine.load_model(having(legal=8, large=32, rhymes=4))) == ("legal", "large", "rhymes")
    assert old.is_closed
    assert starter.cores["m"].room == AdapterRoom(3, 32)
    assert engine.tiers == {"m": "device"}
    assert engine.add(payload("s", adapter="large")) == []


def test_a_model_that_began_with_no_room_begins_anew_for_its_first(starter: Starter) -> None:
    engine = VllmEngine(starter, OPTIONS)
    engine.load_model(M)
    engine.add(payload("r"))
    assert engine.load_model(having(legal=8)).late_adapters == {
        "legal": wanting("adapter 'legal' is of rank 8, and its model was started without room for adapters")
    }
    engine.reset()
    assert names(engine.load_model(having(legal=8))) == ("legal",)
    assert starter.num_started == 2


def test_a_model_that_asks_for_room_has_it_from_the_start(starter: Starter) -> None:
    engine = VllmEngine(starter, OPTIONS)
    asking = replace(M, adapter_room=AdapterRoom(num=1, rank=16))
    engine.load_model(asking)
    engine.add(payload("r"))
    more = replace(asking, adapters=adapters(legal=8, rhymes=16))
    assert names(engine.load_model(more)) == ("legal", "rhymes"), "they take turns"
    assert starter.num_started == 1


@pytest.mark.parametrize("sleeping_bytes", [None, math.inf])
def test_where_it_does_not_begin_anew_it_is_served_as_it_was_and_that_is_not_tried_again(
    starter: Starter, sleeping_bytes: float | None
) -> None:
    engine = VllmEngine(starter, OPTIONS, sleeping_bytes=sleeping_bytes)
    engine.load_model(having(legal=8))
    for _ in range(2):
        loaded = engine.load_model(having(legal=8, huge=128, rhymes=4))
        assert loaded.model.adapters == ("legal", "rhymes")
        assert loaded.broken_adapters == {"huge": "no memory for 3 adapters of rank 128"}
        assert loaded.late_adapters == {}
        assert starter.num_started == 2
        engine.add(payload("r", adapter="legal"))  # whether it has requests or not
    assert engine.tiers == {"m": "device"}


def test_a_model_that_does_not_start_with_its_adapters_is_served_without_them(starter: Starter) -> None:
    engine = VllmEngine(starter, OPTIONS)
    for _ in range(2):
        loaded = engine.load_model(having(huge=128, rhymes=4))
        assert loaded.model.adapters == ()
        problem = "no memory for 2 adapters of rank 128"
        assert loaded.broken_adapters == {"huge": problem, "rhymes": problem}
        assert starter.num_started == 2
    assert engine.add(payload("r")) == []
    with pytest.raises(ModelRefusedError, match="its architecture is not known"):
        engine.load_model(replace(having(legal=8), name="bad"))


def test_one_that_sleeps_takes_them_when_it_wakes(starter: Starter) -> None:
    engine = VllmEngine(starter, OPTIONS, sleeping_bytes=math.inf)
    engine.load_model(having(legal=8))
    engine.load_model(ModelSpec(name="other", source="none"))
    assert engine.reader(having(rhymes=8)) is None, "it wakes first"
    assert names(engine.load_model(having(legal=8, rhymes=8))) == ("legal", "rhymes")
    assert starter.num_started == 2


def test_what_steps_cost_is_known_of_a_model_that_has_been_measured(starter: Starter) -> None:
    cost = StepCost(0.01, 1e-3, 1e-6, 1e-7)
    engine = VllmEngine(starter, OPTIONS, profiled={"m": cost})
    engine.load_model(M)
    assert engine.stats().cost == cost
    engine.load_model(ModelSpec(name="other", source="none"))
    assert engine.stats().cost is None

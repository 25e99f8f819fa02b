"""vLLM as an engine: which models stay, and requests that come, go and come again."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest

from gpu_node.engine.requests.image import Kept
from gpu_node.vllm.serving.core_residents import ModelsBusyError
from gpu_node.vllm.serving.engine import VllmEngine
from gpu_node.vllm.words.border import CoreStep, ModelRefusedError, StepSize
from shared.config.engines.engine import ModelSpec, ModelTask
from tests.gpu_node.vllm.made import OPTIONS, Starter, payload, row, step


def spec(name: str) -> ModelSpec:
    return ModelSpec(name=name, source="none")


def engine(starter: Starter, *models: str) -> VllmEngine:
    one = VllmEngine(starter, OPTIONS)
    for name in models or ("m",):
        one.load_model(spec(name))
    return one


def test_as_many_models_stay_as_host_memory_has_places_and_one() -> None:
    starter = Starter()
    one = engine(starter, "a", "b", "a")
    assert one.tiers == {"a": "device", "b": "device"}
    one.load_model(spec("c"))
    assert list(one.tiers) == ["a", "c"], "b was asked for longest ago"
    assert starter.cores["b"].is_closed
    one.close()
    assert all(core.is_closed for core in starter.cores.values())


def test_a_model_that_cannot_come_changes_nothing() -> None:
    starter = Starter()
    one = engine(starter, "a", "b")
    with pytest.raises(ModelRefusedError):
        one.load_model(spec("bad"))
    assert list(one.tiers) == ["a", "b"]
    assert one.add(payload("r", model="b")) == []


def test_models_that_draw_embed_and_score_stay_beside_one_another() -> None:
    starter = Starter()
    one = VllmEngine(starter, replace(OPTIONS, host_models=2))
    tasks: dict[str, ModelTask] = {"m": "generate", "texts": "embed", "judge": "score"}
    for name, task in tasks.items():
        one.load_model(replace(spec(name), task=task))
    assert one.add(payload("a")) == []
    for name in ("texts", "judge"):
        assert one.add(payload(f"of {name}", max_tokens=1, model=name, is_embedding=True)) == []
    assert {name: [asked.task for asked in core.running] for name, core in starter.cores.items()} == {
        "m": ["generate"],
        "texts": ["embed"],
        "judge": ["score"],
    }
    (told,) = one.take("judge", row("2", -1.0, 1.0))
    assert (told.request_id, told.embedding) == ("of judge", struct.pack("<2f", -1.0, 1.0))
    one.check()


def test_a_model_with_requests_does_not_go() -> None:
    one = engine(Starter(), "a", "b")
    one.add(payload("r", model="a"))
    one.load_model(spec("c"))
    assert list(one.tiers) == ["a", "c"], "b is idle"
    one.add(payload("s", model="c"))
    with pytest.raises(ModelsBusyError, match="cannot load 'd': 'a', 'c' have sequences; drain or reset first"):
        one.load_model(spec("d"))


def test_where_models_sleep_one_is_awake_and_the_others_keep_their_weights_in_host_memory() -> None:
    starter = Starter()
    one = VllmEngine(starter, OPTIONS, sleeping_bytes=math.inf)
    for name in ("a", "b"):
        one.load_model(spec(name))
    assert one.tiers == {"a": "host", "b": "device"}
    (refused,) = one.add(payload("early", model="a"))
    assert refused.error == "model 'a' is not loaded here; loaded: 'b'"
    one.load_model(spec("a"))
    assert one.tiers == {"b": "host", "a": "device"}
    assert one.add(payload("r", model="a")) == []
    one.load_model(spec("a"))
    for wanted in ("b", "c"):
        with pytest.raises(ModelsBusyError, match=f"cannot load '{wanted}': 'a' has sequences; drain or reset first"):
            one.load_model(spec(wanted))
    one.reset()
    one.load_model(spec("c"))
    assert one.tiers == {"a": "host", "c": "device"}, "b was asked for longest ago"
    assert starter.num_awake == [0, 0, 0], "the device's memory was free for whoever came"
    with pytest.raises(ModelRefusedError):
        one.load_model(spec("bad"))
    assert one.tiers == {"a": "host", "c": "device"}
    assert [starter.cores[name].is_awake for name in ("a", "c")] == [False, True]


def test_models_sleep_as_far_as_their_weights_have_room() -> None:
    starter = Starter(small=2, middle=3, large=6)
    one = VllmEngine(starter, replace(OPTIONS, host_models=8), sleeping_bytes=5)
    for name in ("small", "middle"):
        one.load_model(spec(name))
    one.load_model(spec("large"))
    assert one.tiers == {"small": "host", "middle": "host", "large": "device"}
    one.load_model(spec("small"))
    assert one.tiers == {"middle": "host", "small": "device"}
    assert starter.cores["large"].is_closed
    one.load_model(spec("large"))
    with pytest.raises(ModelRefusedError):
        one.load_model(spec("bad"))
    assert one.tiers == {"middle": "host", "small": "host"}, "its place on the device had to be free"
    one.load_model(spec("small"))
    assert one.add(payload("r", model="small")) == []
    one.reset()
    one.load_model(spec("fourth"))
    one.load_model(spec("large"))
    assert one.tiers == {"middle": "host", "small": "host", "fourth": "host", "large": "device"}


def test_a_newer_attempt_replaces_an_older_one_and_the_same_runs_once() -> None:
    starter = Starter()
    one = engine(starter)
    for attempt in (1, 1, 0):
        assert one.add(payload("r", attempt=attempt)) == []
    assert [running.core_id for running in starter.cores["m"].running] == ["0"]
    one.add(payload("r", attempt=2))
    assert [running.core_id for running in starter.cores["m"].running] == ["1"]
    assert one.stats().num_received == 4
    assert [chunk.attempt for chunk in one.take("m", step({"0": 8, "1": 9}))] == [2]


def test_a_model_that_is_not_there_is_an_error() -> None:
    (chunk,) = engine(Starter()).add(payload("r", model="other"))
    assert chunk.error == "model 'other' is not loaded here; loaded: 'm'"


def test_evicted_requests_are_gone_and_nothing_is_said_to_be_kept() -> None:
    starter = Starter()
    one = engine(starter)
    one.add(payload("r"))
    assert one.evict(["r", "unknown", "r"]) == ([], [Kept("r", 0)])
    assert starter.cores["m"].running == []
    assert one.hand_over(["r"]) == []
    assert one.take("m", step({"0": 8})) == []
    assert not one.has_work


def test_reset_forgets_the_requests_of_all_models() -> None:
    starter = Starter()
    one = engine(starter, "a", "b")
    one.add(payload("r", model="a"))
    one.add(payload("s", model="b"))
    one.reset()
    assert not one.has_work
    assert [core.running for core in starter.cores.values()] == [[], []]
    one.check()


def test_the_cost_of_steps_is_learnt() -> None:
    one = engine(Starter())
    for _ in range(3):
        one.take("m", CoreStep([], 0.0, size=StepSize(4, 40, 40, 0.5)))
    stats = one.stats()
    assert stats.step_s == 0.5
    assert stats.cost is not None
    assert stats.cost.predict_s(4, 40, 40) == pytest.approx(0.5)


def test_stats_are_those_of_the_model_that_was_asked_for_last() -> None:
    one = engine(Starter(), "a", "b")
    one.add(payload("r", model="a"))
    stats = one.stats()
    assert (stats.num_waiting, stats.num_free_blocks, stats.num_admittable) == (1, 10, 1)

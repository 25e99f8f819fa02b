"""Commands to an engine whose steps are predicted, and what its agent hears."""

from __future__ import annotations

from collections import deque

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands import Commands
from gpu_node.engine.process.protocol import (
    AbortRequests,
    Command,
    EngineEvent,
    HandOverImages,
    Image,
    LoadModel,
    ModelLoaded,
    Reset,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engine import EngineOptions, ModelSpec
from shared.messages.payload import Payload, Sampling
from shared.messages.step_cost import StepCost

OPTIONS = EngineOptions(block_size=4, kv_cache_bytes=1 << 20, evicted_kv_bytes=1 << 20, async_scheduling=False)
SPEC = ModelSpec(name="m", source="none", max_model_len=64)


def engine() -> Engine:
    one = Engine(PredictedExecutor(StepCost(1.0, 0.0, 0.0), OPTIONS, token_kv_bytes=1024, vocab_size=256), OPTIONS)
    one.load_model(SPEC)
    return one


def run(request_id: str, model: str = "m") -> RunAttempt:
    return RunAttempt(Payload(request_id, 0, "g", model, [1, 2, 3], Sampling(max_tokens=8)))


def carried_out(one: Engine, *commands: Command) -> tuple[list[EngineEvent], object, list[Command]]:
    """What was told, the command that is the process's own, and those behind it."""
    told: list[EngineEvent] = []
    left = deque(commands)
    carrying = Commands(one, told.append)
    own = carrying.carry_out(left)
    carrying.report()
    return told, own, list(left)


def shape(event: EngineEvent) -> tuple[object, ...]:
    match event:
        case StepReport(chunks, stats):
            return "report", [(chunk.request_id, chunk.finish_reason) for chunk in chunks], stats.num_waiting
        case TakenOut(kept, _):
            return "out", kept
        case Image(request_id, data):
            return "image", request_id, bool(data)
    raise AssertionError(event)


def test_commands_up_to_the_first_that_is_the_process_s_own() -> None:
    one = engine()
    told, own, left = carried_out(one, run("a"), run("b", model="other"), LoadModel("m"), run("c"))
    assert own == LoadModel("m")
    assert left == [run("c")]
    assert [shape(event) for event in told] == [("report", [("b", "error")], 1)]
    _, own, left = carried_out(one, Shutdown(), run("c"))
    assert own == Shutdown()
    assert left == [run("c")]


def test_what_ended_before_an_eviction_is_told_before_it() -> None:
    one = engine()
    carried_out(one, run("a"))
    one.step(0.0)
    told, own, _ = carried_out(one, run("b", model="other"), TakeOut(["a", "nobody's"]), HandOverImages(["a", "b"]))
    assert own is None
    assert [shape(event) for event in told] == [
        ("report", [("b", "error")], 0),
        ("out", [Kept("a", 3)]),
        ("image", "a", True),
        ("report", [], 0),
    ]


def test_aborted_and_reset_requests_are_gone() -> None:
    one = engine()
    told, _, _ = carried_out(one, run("a"), run("b"), AbortRequests(["a", "nobody's"]))
    assert [shape(event) for event in told] == [("report", [], 1)]
    carried_out(one, Reset())
    assert not one.has_work


def test_a_model_that_is_loaded_is_told_with_where_it_came_from() -> None:
    one = engine()
    told: list[EngineEvent] = []
    Commands(one, told.append).loaded(one.load_model(SPEC), load_s=2.5, source="disk")
    assert told == [
        ModelLoaded(
            model="m",
            num_blocks=256,
            block_size=4,
            block_bytes=4096,
            max_model_len=64,
            load_s=2.5,
            source="disk",
            tiers={"m": "device"},
        )
    ]

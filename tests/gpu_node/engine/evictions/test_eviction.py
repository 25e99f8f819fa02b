"""An engine whose requests give way, and go on with the tokens that they would have had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.requests.chunk import LOST, OutputChunk
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.workload import prompt, request

MIB = 1 << 20
COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0001)
TOKEN_BYTES = 1024
KINDS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"num_choices": 3, "num_logprobs": 1},
    {"is_beam": True, "num_candidates": 3, "num_choices": 2},
    {"temperature": 0.7, "presence_penalty": 1.0, "repetition_penalty": 1.3},
]

Make = Callable[..., Engine]


class RecordingExecutor(PredictedExecutor):
    """Keeps the plans that it was given."""

    plans: list[StepPlan]

    def submit(self, plan: StepPlan) -> Any:
        self.plans.append(plan)
        return super().submit(plan)


def predicted(**given: Any) -> tuple[Engine, list[StepPlan]]:
    """An engine that counts moves at 1 MB/s, and the plans that it submits."""
    options = EngineOptions(**{"kv_cache_bytes": MIB, "step_tokens": 64, "max_num_seqs": 4, "block_size": 4} | given)
    executor = RecordingExecutor(COST, options, TOKEN_BYTES, vocab_size=50, kv_bytes_per_s=1e6)
    executor.plans = []
    engine = Engine(executor, options)
    engine.load_model(ModelSpec(name="m", source="none", max_model_len=128))
    return engine, executor.plans


def simple(request_id: str, num_prompt_tokens: int = 6, max_tokens: int = 20, attempt: int = 0) -> Payload:
    text = [(sum(map(ord, request_id)) + number) % 50 for number in range(num_prompt_tokens)]
    return Payload(request_id, attempt, "g", "m", text, Sampling(max_tokens=max_tokens))


def drain(engine: Engine) -> list[OutputChunk]:
    return [chunk for chunks in tiny.steps(engine) for chunk in chunks]


@pytest.fixture(params=["reference", "cpu"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[CpuExecutor] = []

    def make(*specs: ModelSpec, **given: Any) -> Engine:
        options = EngineOptions(**{"kv_cache_bytes": MIB, "block_size": 4} | given)
        if request.param == "reference":
            engine = Engine(ReferenceExecutor(options), options)
        else:
            made.append(CpuExecutor(options, num_threads=1))
            engine = Engine(made[-1], options)
        for spec in specs:
            engine.load_model(spec)
        return engine

    yield make
    for executor in made:
        executor.close()


def spec(path: Path, name: str = "tiny") -> ModelSpec:
    return ModelSpec(name=name, source=str(path), max_model_len=tiny.CONTEXT)


def requests() -> list[Payload]:
    return [
        request(str(number), prompt(number, 9 + number), 30, seed=number, ignore_eos=True, **kind)
        for number, kind in enumerate(KINDS)
    ]


# --- who is taken out, and what is said of it -------------------------------------------------------------------------


def test_the_tokens_of_the_steps_in_flight_come_out_before() -> None:
    engine, _ = predicted(async_scheduling=True)
    for name in "ab":
        engine.add(simple(name))
    assert engine.step(0.0) == []
    assert len(engine.step(0.0)) == 2
    chunks, kept = engine.evict(["b", "unknown", "b"])
    assert [(chunk.request_id, chunk.start) for chunk in chunks] == [("a", 1), ("b", 1)]
    assert kept == [Kept("b", 7)]
    assert (engine.stats().num_running, engine.stats().num_waiting) == (1, 0)
    engine.check()


def test_who_ends_in_these_steps_is_left_out() -> None:
    engine, _ = predicted()
    engine.add(simple("a", max_tokens=1))
    engine.step(0.0)
    chunks, kept = engine.evict(["a"])
    assert (chunks[0].is_last, kept, engine.has_work) == (True, [], False)


def test_who_is_evicted_twice_is_answered_twice() -> None:
    engine, _ = predicted(async_scheduling=False)
    engine.add(simple("a"))
    engine.step(0.0)
    assert engine.evict(["a"]) == engine.evict(["a"]) == ([], [Kept("a", 6)])
    engine.add(simple("a"))
    assert engine.evict(["a"]) == ([], [Kept("a", 6)]), "it waited to come back"
    engine.check()


def test_an_urgent_request_starts_in_the_step_behind_the_eviction() -> None:
    engine, plans = predicted(max_num_seqs=4, async_scheduling=True)
    long = [simple(name, 30, 60) for name in "abcd"]
    for payload in long:
        engine.add(payload)
    for _ in range(5):
        engine.step(0.0)
    engine.evict("abcd")
    engine.add(simple("urgent", 11))
    engine.step(0.0)
    assert [(len(part.token_ids), part.start) for part in plans[-1].sequences] == [(11, 0)]
    assert len(plans[-1].sequences[0].draws) == 1
    num_before = len(plans)
    for payload in long:
        engine.add(payload)
    chunks = drain(engine)
    rows = {len(part.token_ids) for plan in plans[num_before:] for part in plan.sequences}
    assert rows == {1}, "nothing is computed again"
    assert {chunk.request_id for chunk in chunks if chunk.is_last} == {*"abcd", "urgent"}


def test_nothing_is_computed_again() -> None:
    engine, plans = predicted(async_scheduling=False)
    engine.add(simple("a", max_tokens=8))
    tokens = [token for _ in range(4) for chunk in engine.step(0.0) for token in chunk.token_ids]
    engine.evict(["a"])
    engine.add(simple("b", 60, 3))
    drain(engine)
    num_before = len(plans)
    assert engine.add(simple("a", max_tokens=8)) == []
    chunks = drain(engine)
    assert [part.start for plan in plans[num_before:] for part in plan.sequences] == [9, 10, 11, 12]
    assert [chunk.start for chunk in chunks] == [4, 5, 6, 7]
    alone, _ = predicted()
    alone.add(simple("a", max_tokens=8))
    assert tokens + [chunk.token_ids[0] for chunk in chunks] == [chunk.token_ids[0] for chunk in drain(alone)]


# --- host memory ------------------------------------------------------------------------------------------------------


def test_without_room_nothing_is_kept_and_those_that_are_stay() -> None:
    engine, _ = predicted(async_scheduling=False, evicted_kv_bytes=2 * 4 * TOKEN_BYTES)
    for name in "ab":
        engine.add(simple(name))
    engine.step(0.0)
    assert engine.evict("ab")[1] == [Kept("a", 6), Kept("b", 0)]
    assert engine.evict("ab")[1] == [Kept("a", 6)], "nothing is known of b any more"
    engine.check()


def test_what_moves_and_what_is_refused_is_counted() -> None:
    """Blocks of 4 tokens; a computes 6, so two blocks of it go and one comes: the other is cached on the device."""
    block_bytes = 4 * TOKEN_BYTES
    engine, _ = predicted(async_scheduling=False, evicted_kv_bytes=2 * block_bytes)
    for name in "ab":
        engine.add(simple(name))
    engine.step(0.0)
    before = engine.counts
    engine.evict("ab")
    assert engine.counts - before == Counts(evicted=TierCounts(out_bytes=2 * block_bytes, num_refused=1))
    before = engine.counts
    engine.add(simple("a"))
    engine.step(0.0)
    back = TierCounts(in_bytes=block_bytes, num_restored=1)
    assert engine.counts - before == Counts(restored_tokens=6, evicted=back)
    before = engine.counts
    engine.add(replace(simple("b", attempt=1), outputs=[Output([7])]))
    assert engine.stats().counts - before == Counts(num_recomputed=1)


def test_what_has_not_begun_is_not_kept() -> None:
    engine, _ = predicted()
    engine.add(simple("a"))
    assert engine.evict(["a"]) == ([], [Kept("a", 0)])
    assert not engine.has_work


def test_moves_are_measured_and_delay_the_predicted_step() -> None:
    engine, _ = predicted(async_scheduling=False)
    engine.add(simple("a"))
    engine.step(0.0)
    assert engine.stats().kv_bytes_per_s == 0.0
    step_s = engine.stats().step_s
    engine.evict(["a"])
    assert engine.stats().kv_bytes_per_s == pytest.approx(1e6)
    engine.add(simple("b"))
    engine.step(0.0)
    assert engine.stats().step_s == pytest.approx(step_s + 2 * 4 * TOKEN_BYTES / 1e6)


@pytest.mark.parametrize("ending", ["abort", "reset", "newer", "refused"])
def test_an_image_is_dropped_with_its_attempt(ending: str) -> None:
    engine, plans = predicted(async_scheduling=False, evicted_kv_bytes=2 * 4 * TOKEN_BYTES)
    engine.add(simple("a"))
    engine.step(0.0)
    engine.evict(["a"])
    if ending == "abort":
        engine.abort(["a"])
    elif ending == "reset":
        engine.reset()
    elif ending == "newer":
        engine.add(simple("a", attempt=1))
        assert engine.add(simple("a")) == []
        engine.step(0.0)
        assert plans[-1].sequences[0].draws[0].position == 0
        engine.abort(["a"])
    else:
        assert engine.add(simple("a", num_prompt_tokens=200))[0].finish_reason == "refused"
    engine.add(simple("b"))
    engine.step(0.0)
    assert engine.evict(["a", "b"])[1] == [Kept("b", 6)], "there is room again"


def test_an_older_attempt_changes_nothing() -> None:
    engine, _ = predicted(async_scheduling=False)
    engine.add(simple("a", attempt=1))
    engine.step(0.0)
    engine.evict(["a"])
    assert engine.add(simple("a")) == []
    assert not engine.has_work
    assert engine.evict(["a"])[1] == [Kept("a", 6)]


# --- with tensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_tokens_are_equal_when_another_model_was_loaded_meanwhile(
    make: Make, tiny_path: Path, async_scheduling: bool
) -> None:
    """A runs, is evicted; B is loaded in its place and runs; A comes back from host memory, and its requests go on."""
    alone = make(spec(tiny_path))
    expected: dict[tuple[str, int], list[int]] = {}
    for payload in requests():
        alone.add(payload)
        expected |= outputs(drain(alone))
    engine = make(spec(tiny_path), async_scheduling=async_scheduling, host_models=1)
    for payload in requests():
        assert engine.add(payload) == []
    chunks = [chunk for _ in range(6) for chunk in engine.step(0.0)]
    last, kept = engine.evict([payload.request_id for payload in requests()])
    assert all(one.kv_tokens for one in kept)
    engine.load_model(spec(tiny_path, "other"))
    assert engine.tiers == {"tiny": "host", "other": "device"}
    other = [tiny.request(f"other-{number}", prompt(number, 50), 20, model="other") for number in range(4)]
    assert all(tiny.run(engine, other))
    engine.load_model(spec(tiny_path))
    for payload in requests():
        assert engine.add(payload) == []
    assert outputs([*chunks, *last, *drain(engine)]) == expected


def outputs(chunks: list[OutputChunk]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for chunk in chunks:
        assert not chunk.error
        found[chunk.request_id, chunk.choice] = found.get((chunk.request_id, chunk.choice), []) + chunk.token_ids
    return found


def test_an_image_goes_to_another_engine(make: Make, tiny_path: Path) -> None:
    one, other = make(spec(tiny_path)), make(spec(tiny_path))
    payload = requests()[1]
    alone = make(spec(tiny_path))
    alone.add(payload)
    expected = outputs(drain(alone))
    one.add(payload)
    chunks = [chunk for _ in range(6) for chunk in one.step(0.0)]
    chunks += one.evict([payload.request_id])[0]
    (image,) = one.hand_over([payload.request_id, "unknown"])
    assert image.request_id == payload.request_id
    assert one.hand_over([payload.request_id]) == [], "it is given away"
    assert other.add(payload, image.data) == []
    assert other.stats().kv_bytes_per_s == 0.0
    chunks += drain(other)
    assert other.stats().kv_bytes_per_s > 0
    assert outputs(chunks) == expected


def test_an_image_of_other_weights_is_no_beginning_for_anybody(make: Make, tmp_path: Path) -> None:
    """A node that an update ends hands over to one that has other weights under the same name.

    Its blocks would be found by all who begin alike, and stay in caches long after the request.
    """
    save("llama", tmp_path / "old", initializer_range=0.3)
    save("llama", tmp_path / "new", initializer_range=0.2)
    old, new, alone = make(spec(tmp_path / "old")), make(spec(tmp_path / "new")), make(spec(tmp_path / "new"))
    text = prompt(5, 20)
    begun, other = tiny.request("begun", text, 10), tiny.request("other", [*text, 7], 10)
    old.add(begun)
    for _ in range(4):
        old.step(0.0)
    old.evict(["begun"])
    (image,) = old.hand_over(["begun"])
    assert [chunk.finish_reason for chunk in new.add(begun, image.data)] == [LOST]
    assert tiny.run(new, [other]) == tiny.run(alone, [other])


@pytest.mark.parametrize("case", ["damaged", "gone", "another attempt", "another format", "no room"])
def test_an_image_that_cannot_be_used_ends_the_attempt(make: Make, tiny_path: Path, case: str) -> None:
    """Its payload does not know of the tokens that the client has by now: they would be drawn again, maybe others."""
    one, payload = make(spec(tiny_path)), requests()[0]
    one.add(payload)
    for _ in range(6):
        one.step(0.0)
    one.evict([payload.request_id])
    (image,) = one.hand_over([payload.request_id])
    data = {"damaged": image.data[:-1], "gone": b""}.get(case, image.data)
    if case == "another attempt":
        payload = replace(payload, attempt=1)
    other = make(
        spec(tiny_path),
        block_size=8 if case == "another format" else 4,
        evicted_kv_bytes=64 if case == "no room" else MIB,
    )
    (end,) = other.add(payload, data)
    assert (end.finish_reason, end.is_last) == (LOST, True)
    assert end.error
    assert other.counts == Counts(evicted=TierCounts(num_refused=int(case == "no room")))
    assert not other.has_work
    told = [Output([3, 1, 4])]
    other.add(replace(payload, attempt=payload.attempt + 1, outputs=told))
    assert other.counts.num_recomputed == 1
    assert [chunk.start for chunk in drain(other)] == list(range(3, 30)), "its next attempt goes on behind them"


def test_who_is_back_in_line_is_not_handed_over() -> None:
    engine, _ = predicted(async_scheduling=False)
    engine.add(simple("a"))
    engine.step(0.0)
    engine.evict(["a"])
    engine.add(simple("a"))
    assert engine.hand_over(["a"]) == []
    assert drain(engine)[-1].is_last


def test_an_image_may_be_as_large_as_host_memory() -> None:
    """Nothing else bounds it: it passes no socket between engine and agent."""
    num_bytes = 1 << 30
    options = EngineOptions(
        kv_cache_bytes=4 * num_bytes, evicted_kv_bytes=num_bytes, block_size=4, async_scheduling=False
    )
    engine = Engine(PredictedExecutor(COST, options, num_bytes // 16, vocab_size=50), options)
    engine.load_model(ModelSpec(name="m", source="none", max_model_len=32))
    engine.add(simple("a", num_prompt_tokens=9))
    engine.step(0.0)
    engine.step(0.0)
    assert [one.kv_tokens for one in engine.evict("a")[1]] == [10]
    (image,) = engine.hand_over("a")
    assert (image.request_id, image.attempt, image.number) == ("a", 0, 1)
    assert image.kv_bytes == 3 * 4 * (num_bytes // 16)
    assert image.num_bytes < 1024, "a predicted device has no content"

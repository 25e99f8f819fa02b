"""The simulator's executor: the engine runs on it as on the real one, without torch in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpu_node.engine.border.plan import BlockSwap, Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.residents import EngineBusyError
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Payload, Sampling
from tests.gpu_node.masks import mask_of

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, step_tokens=8, max_num_seqs=2, async_scheduling=False)
COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0001, attended_token_s=0.00001)


def engine() -> Engine:
    one = Engine(PredictedExecutor(COST, OPTIONS, token_kv_bytes=1024, vocab_size=50), OPTIONS)
    one.load_model(ModelSpec(name="m", source="none", max_model_len=64))
    return one


def payload(request_id: str, attempt: int = 0, output: list[int] | None = None) -> Payload:
    return Payload(
        request_id, attempt, "g", "m", [1, 2, 3], Sampling(max_tokens=3, seed=4), [Output(output)] if output else []
    )


def test_a_step_costs_a_base_and_something_for_each_row_each_token_it_reads_and_each_that_a_row_attends_to() -> None:
    draw = Draw(0, Sampling(max_tokens=1), 0)
    plan = StepPlan((ScheduledSequence(0, (1, 2, 3), 4, (0,), (draw,)), ScheduledSequence(1, (1,), 9, (1,), (draw,))))
    seconds = COST.predict_s(plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens)
    assert seconds == pytest.approx(0.01 + 4 * 0.001 + (7 + 10) * 0.0001 + (5 + 6 + 7 + 10) * 0.00001)


def test_the_engine_runs_and_measures_on_predictions() -> None:
    one = engine()
    assert one.add(payload("a")) == []
    chunks = [chunk for _ in range(3) for chunk in one.step(now=0.0)]
    assert [chunk.start for chunk in chunks] == [0, 1, 2]
    assert chunks[-1].finish_reason == "length"
    stats = one.stats()
    assert stats.step_s == pytest.approx(0.01 + 0.001 + 5 * 0.0001 + 5 * 0.00001)
    assert (stats.num_running, stats.num_free_blocks, stats.num_received) == (0, 64, 1)
    # resumed elsewhere it makes the same tokens
    tokens = [token for chunk in chunks for token in chunk.token_ids]
    other = engine()
    other.add(payload("a", output=tokens[:1]))
    assert [other.step(0.0)[0].token_ids for _ in range(2)] == [tokens[1:2], tokens[2:]]


def test_a_newer_attempt_replaces_an_older_one() -> None:
    one = engine()
    one.add(payload("a", attempt=1))
    assert one.add(payload("a", attempt=1)) == []
    assert one.add(payload("a", attempt=0)) == []
    assert one.step(0.0)[0].attempt == 1
    one.add(payload("a", attempt=2))
    assert one.step(0.0) == [OutputChunk("a", 2, 0, one_token(), cached_tokens=0)]
    assert one.stats().num_running == 1


def one_token() -> list[int]:
    one = engine()
    one.add(payload("x"))
    return one.step(0.0)[0].token_ids


def test_the_model_cannot_change_under_sequences() -> None:
    one = engine()
    one.add(payload("a"))
    with pytest.raises(EngineBusyError, match="'m' has sequences"):
        one.load_model(ModelSpec(name="other", source="none", max_model_len=64))
    one.reset()
    assert one.load_model(ModelSpec(name="other", source="none", max_model_len=64)).name == "other"


def test_without_a_model_requests_are_refused() -> None:
    one = Engine(PredictedExecutor(COST, OPTIONS, token_kv_bytes=1024, vocab_size=50), OPTIONS)
    assert one.add(payload("a")) == [
        OutputChunk("a", 0, 0, [], "error", "model 'm' is not loaded here; loaded: none", is_last=True)
    ]
    assert one.stats().num_admittable == 0


def test_masked_draws_give_what_is_allowed() -> None:
    def drawn(answer_tokens: int, position: int, allowed: bytes) -> int:
        executor = PredictedExecutor(COST, OPTIONS, 64, 50, answer_tokens=lambda _: answer_tokens)
        draw = Draw(0, Sampling(max_tokens=9, seed=position), position, allowed=allowed)
        return executor.submit(StepPlan((ScheduledSequence(0, (1,), 0, (0,), (draw,)),))).result().token_ids[0]

    assert {drawn(99, position, mask_of([3, 17, 49])) for position in range(20)} == {3, 17}
    assert drawn(5, 4, mask_of([3, 17, 49])) == 49, "the end"
    assert drawn(5, 4, mask_of([3])) == 3, "not yet"


def test_bookkeeping_and_prediction_do_not_import_torch() -> None:
    modules = ["engine", "steps.scheduler", "process.protocol", "process.server", "process.connection"]
    imports = "; ".join(f"import gpu_node.engine.{module}" for module in modules)
    code = f"{imports}; import gpu_node.executors.predicted.executor, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_swaps_cost_bytes_over_bandwidth_beside_the_rows_or_behind_them() -> None:
    """Blocks of 64 bytes at 6,400 B/s: 10 ms each. A step of one row takes 15 ms."""
    cost = StepCost(step_s=0.010, token_s=0.005, context_token_s=0.0)
    rows = (ScheduledSequence(0, (5,), 0, (0,), ()),)
    swaps = (BlockSwap(0, 0), BlockSwap(1, 1))
    for overlap_swaps, moves_s in ((True, 0.005), (False, 0.020)):
        options = EngineOptions(block_size=1, kv_cache_bytes=1 << 20, overlap_swaps=overlap_swaps)
        executor = PredictedExecutor(cost, options, 64, 100, 6_400.0)
        result = executor.submit(StepPlan(rows, swaps_out=swaps)).result()
        assert (result.duration_s, result.moves_s) == pytest.approx((0.015, moves_s))
        result = executor.submit(StepPlan(rows, swaps_in=swaps[:1])).result()
        assert (result.duration_s, result.moves_s) == pytest.approx((0.015, 0.0 if overlap_swaps else 0.010))
        result = executor.submit(StepPlan((), swaps_in=swaps)).result()
        assert (result.duration_s, result.moves_s) == pytest.approx((0.0, 0.020)), "nothing is computed"

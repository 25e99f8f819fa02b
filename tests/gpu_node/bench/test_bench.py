"""The engine's benchmark: points, the least time of a point worked out by hand, and what a log of steps tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_node.bench.measurement import Bench, Measurement, MeasurementError
from gpu_node.bench.point import BenchPoint, PointError, parse_points
from gpu_node.bench.report import Machine, PointProgress, PointResult, decode, encode
from gpu_node.bench.roofline import Roofline, least_steps
from gpu_node.bench.step_log import LoggedStep, LoggingExecutor, decode_steps, device_idle_s
from gpu_node.bench.summary import summarise
from gpu_node.engine.border.plan import Draw, ScheduledSequence
from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.cost import DeviceRates, NumberBytes
from gpu_node.graph.step_shape import SequencePart, StepShape
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family, ModelConfig, Rope
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny

LLAMA = ModelConfig(
    family=Family.LLAMA,
    num_layers=2,
    hidden_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=32,
    context_length=64,
    norm_epsilon=1e-5,
    tied_embedding=False,
    eos_token_ids=frozenset(),
    rope=Rope(10_000.0),
)
SIZES = NumberBytes(weight=2.0, buffer=0.0, kv=1.0)
OPTIONS = EngineOptions(kv_cache_bytes=1 << 20)


def roofline(bytes_per_s: float = 1e30, flops_per_s: float = 1e30) -> Roofline:
    return Roofline(build_program(LLAMA), DeviceRates(bytes_per_s, flops_per_s), SIZES)


# --- points -----------------------------------------------------------------------------------------------------------


def test_points_are_written_as_they_are_read() -> None:
    points = parse_points("1x32x128, 8x128x64")
    assert points == (BenchPoint(1, 32, 128), BenchPoint(8, 128, 64))
    assert ",".join(map(str, points)) == "1x32x128,8x128x64"
    assert (points[1].num_tokens, points[1].num_rows) == (192, 8 * 191)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no point: write REQUESTSxPROMPTxOUTPUT"),
        ("1x2x3,", "'' is no point"),
        ("8x128", "'8x128' is no point"),
        ("8x-1x3", "'8x-1x3' is no point"),
        ("1x2x3x4", "'1x2x3x4' is no point"),
        ("0x1x1", "0x1x1: from 1 to 4096 requests"),
        ("4097x1x1", "4097x1x1: from 1 to 4096 requests"),
        ("1x0x1", "1x0x1: prompt and output have 1 token at least"),
        ("1x1x0", "1x1x0: prompt and output have 1 token at least"),
        ("1x1048576x1", "and 1048576 at most together"),
        (",".join(["1x1x1"] * 65), "65 points are too many; 64 can be measured"),
    ],
)
def test_what_is_no_point_is_refused(text: str, message: str) -> None:
    with pytest.raises(PointError, match=message):
        parse_points(text)


# --- the least time -------------------------------------------------------------------------------------------------


def test_all_prompts_are_one_step_and_each_further_token_is_another() -> None:
    assert list(least_steps(BenchPoint(2, 3, 3))) == [
        StepShape((SequencePart(0, 3),) * 2, num_draws=2),
        StepShape((SequencePart(3, 1),) * 2, num_draws=2),
        StepShape((SequencePart(4, 1),) * 2, num_draws=2),
    ]


def test_the_least_time_by_bytes() -> None:
    # a layer: two norms of 8, q and o of 8 * 8, k and v of 8 * 4, three of 8 * 16; then a norm of 8, the head of 32 * 8
    weights = 2 * (2 * 8 + 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16) + 8 + 32 * 8
    assert weights == 1448
    # of the embedding, 8 numbers a row; of keys and values, 8 numbers a token and layer: written, then read with those
    # of all tokens before
    prompts = 2 * (weights + 6 * 8) + 2 * 8 * (6 + 6)
    first = 2 * (weights + 2 * 8) + 2 * 8 * (2 + 8)
    second = 2 * (weights + 2 * 8) + 2 * 8 * (2 + 10)
    assert roofline(bytes_per_s=1000).least_s(BenchPoint(2, 3, 3)) == pytest.approx((prompts + first + second) / 1000)


def test_the_least_time_by_multiplications() -> None:
    num_rows, attended = 6, 2 * (1 + 2 + 3)
    layer = 2 * num_rows * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16)  # products
    layer += 4 * attended * 8  # attention: with keys and with values
    layer += num_rows * (2 * 4 * 8 + 3 * (8 + 4) + 5 * 16 + 2 * 8)  # norms, turns, activation, residual sums
    rest = 1.5 * num_rows * 4 + 2 * (4 * 8 + 2 * 32 * 8)  # angles; norm and head of the two rows that draw
    assert roofline(flops_per_s=1000).least_s(BenchPoint(2, 3, 1)) == pytest.approx((2 * layer + rest) / 1000)


def test_each_step_is_limited_by_the_slower_of_both() -> None:
    by_bytes, by_flops = roofline(bytes_per_s=1000), roofline(flops_per_s=4000)
    both = roofline(bytes_per_s=1000, flops_per_s=4000)
    prompts, decode_step = BenchPoint(2, 3, 1), BenchPoint(2, 3, 2)
    assert both.least_s(prompts) == by_flops.least_s(prompts) > by_bytes.least_s(prompts)
    seconds = [one.least_s(decode_step) - one.least_s(prompts) for one in (both, by_bytes, by_flops)]
    assert seconds[0] == pytest.approx(seconds[1])
    assert seconds[1] > seconds[2]


# --- the log ----------------------------------------------------------------------------------------------------------


def logged(submitted_s: float, done_s: float, *num_rows: int) -> LoggedStep:
    """A step of one draw a sequence; each has 10 tokens before its rows."""
    parts = tuple(
        ScheduledSequence(number, (1,) * rows, 10, (0, 1), (Draw(number, Sampling(4), 0),))
        for number, rows in enumerate(num_rows)
    )
    return LoggedStep(parts, submitted_s, done_s, done_s - submitted_s)


IN_TURN = [logged(0, 4, 3, 3), logged(4.5, 6, 1, 3), logged(6.25, 7, 1, 1), logged(8, 9, 1, 1)]
AHEAD = [logged(0, 4, 3), logged(1, 6, 1), logged(4.5, 7, 1)]


def test_the_device_is_idle_from_a_result_to_the_next_step_unless_that_was_queued_before() -> None:
    assert device_idle_s(IN_TURN) == 0.5 + 0.25 + 1
    assert device_idle_s(AHEAD) == 0
    assert device_idle_s(IN_TURN[:1]) == 0


def test_a_decode_step_has_one_new_token_of_each_sequence_and_lasts_from_result_to_result() -> None:
    assert decode_steps(IN_TURN) == [(IN_TURN[2], 1.0), (IN_TURN[3], 2.0)]
    assert decode_steps(AHEAD) == [(AHEAD[1], 2.0), (AHEAD[2], 1.0)]
    assert IN_TURN[1].shape == StepShape((SequencePart(10, 1), SequencePart(10, 3)), num_draws=2)


def test_the_run_of_median_length_is_told() -> None:
    runs = [Measurement(seconds, 4.0, tuple(IN_TURN), 1) for seconds in (12.0, 10.0, 20.0, 11.0)]
    told = summarise(BenchPoint(2, 3, 3), runs, roofline(bytes_per_s=1000))
    assert (told.point, told.seconds, told.all_seconds) == ("2x3x3", 11.0, [12.0, 10.0, 20.0, 11.0])
    assert told.output_tokens_per_s == pytest.approx(6 / 11)
    assert (told.num_steps, told.num_decode_steps, told.decode_step_s, told.num_preemptions) == (4, 2, 1.5, 1)
    step_bytes = 2 * (1448 + 2 * 8) + 2 * 8 * (2 + 22)  # of two rows that see 11 tokens each
    assert told.decode_bytes_per_s == pytest.approx(2 * step_bytes / 3)
    assert told.decode_read_share == pytest.approx(2 * step_bytes / 3 / 1000)
    assert told.roofline_share == pytest.approx(told.roofline_s / 11)


def test_a_run_without_decode_steps_has_no_figures_of_them() -> None:
    told = summarise(BenchPoint(2, 3, 1), [Measurement(4.0, 4.0, tuple(IN_TURN[:1]), 0)], roofline())
    assert (told.num_decode_steps, told.decode_step_s, told.decode_bytes_per_s) == (0, None, None)


@pytest.mark.parametrize(
    "line",
    [
        Machine(2, [0, 1], 1e9, 2e9, 3e9, 0.5),
        PointProgress("8x128x128", 7),
        PointResult("1x2x3", 1.0, [1.0], 3.0, 0.5, None, 3, 0, 0.5, 0.5, None, None, 0.0, 0, 0.5),
    ],
)
def test_what_the_process_says_is_read_again(line: Machine | PointProgress | PointResult) -> None:
    text = encode(line)
    assert "\n" not in text
    assert decode(text) == line


# --- a real engine ----------------------------------------------------------------------------------------------------


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT)


def test_an_engine_gives_the_same_tokens_through_the_log(tiny_path: Path) -> None:
    log = LoggingExecutor(ReferenceExecutor(OPTIONS))
    engine = Engine(log, OPTIONS)
    engine.load_model(spec(tiny_path))
    requests = [tiny.request("a", [5, 6, 7], 4), tiny.request("b", [9], 2)]
    assert tiny.run(engine, requests) == tiny.run(tiny.make_engine(tiny_path), requests)
    assert log.num_rows == sum(step.shape.num_rows for step in log.steps) == (3 + 3) + (1 + 1)
    assert all(before.done_s <= after.done_s for before, after in zip(log.steps, log.steps[1:], strict=False))
    assert all(step.submitted_s < step.done_s for step in log.steps)


def test_a_point_computes_each_row_once(tiny_path: Path) -> None:
    bench = Bench(ReferenceExecutor(OPTIONS), OPTIONS, spec(tiny_path))
    rows: list[int] = []
    point = BenchPoint(3, 8, 4)
    for _ in range(2):  # the second run shares no prompt with the first
        rows.clear()
        run = bench.measure(point, rows.append)
        assert sum(rows) == point.num_rows
        assert [step.shape.num_rows for step in run.steps] == [24, 3, 3, 3]
        assert 0 < run.first_tokens_s < run.seconds
        assert run.num_preemptions == 0


def test_a_point_that_the_model_cannot_take_is_told_at_once(tiny_path: Path) -> None:
    bench = Bench(ReferenceExecutor(OPTIONS), OPTIONS, spec(tiny_path))
    bench.check([BenchPoint(1, 100, 28)])
    with pytest.raises(MeasurementError, match=r"^1x100x29: a request of 129 tokens; 'tiny' takes 128$"):
        bench.check([BenchPoint(1, 1, 1), BenchPoint(1, 100, 29)])

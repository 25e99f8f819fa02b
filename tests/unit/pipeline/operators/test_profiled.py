"""Profiles as a search reads them: lines, tables R -> P, and their spread, by hand."""

from __future__ import annotations

import pytest

from services.pipeline.operators.profiled import profiled_setting, spread, table
from shared.config.hardware import model_named
from shared.config.measured.pipeline_profile import OperatorTime, Pair, PipelineProfile
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.lanes import ResourceLane


def pair(num_threads: int, product: float, other: float, rows: int = 64) -> Pair:
    return Pair("memory", rows, 128, num_threads, product, other)


def test_dominated_pairs_are_dropped() -> None:
    # with two of four threads attention is no faster than with one, and products are slower
    pairs = [pair(1, 0.75, 0.6), pair(2, 0.5, 0.6), pair(3, 0.25, 0.9)]
    assert table(pairs, "memory") == ((0.0, 0.0), (0.25, 0.6), (0.75, 0.9), (1.0, 1.0))


def test_shapes_are_averaged_and_their_spread_is_told() -> None:
    pairs = [pair(1, 0.4, 0.7), pair(1, 0.6, 0.9, rows=32)]
    assert table(pairs, "memory")[1] == pytest.approx((0.5, 0.8))
    assert spread(pairs, "memory") == pytest.approx(0.125)


def test_what_is_faster_beside_something_has_its_best_speed() -> None:
    assert table([pair(1, 0.5, 1.1)], "memory") == ((0.0, 0.0), (0.5, 1.0), (1.0, 1.0))


def profile(attention: list[OperatorTime]) -> PipelineProfile:
    products = [OperatorTime(name, 0, rows, 1e-6 * (10 + rows)) for name in ("KQV", "O", "UGD") for rows in (16, 64)]
    return PipelineProfile(
        kernels="plain 1",
        model="smollm2-135m",
        source="a file",
        weights="bfloat16",
        device="cpu",
        num_threads=2,
        level="avx2",
        num_layers=30,
        hidden_size=576,
        granule_rows=16,
        copy_bytes_per_s=768e6,
        operators=[*products, *attention],
        pairs=[pair(1, 0.5, 0.8)],
    )


def test_lines_by_rows_and_between_contexts() -> None:
    # a row of decode attention takes 1 µs at 100 tokens and 3 µs at 300: 2 µs at 200, 5 µs at 500, with 4 µs fixed
    attention = [
        OperatorTime(name, context, rows, 1e-6 * (4 + rows * context / 100))
        for name in ("DecAttn", "PfAttn")
        for context in (100, 300)
        for rows in (16, 64)
    ]
    batch = DenseBatch(64, MeanLengths(150, 100))
    setting = profiled_setting(profile(attention), model_named("smollm2-135m"), batch)
    assert setting.times.kqv.seconds(32) == pytest.approx(42e-6)
    assert setting.times.decode_attention.seconds(10) == pytest.approx(24e-6), "150 and 50 tokens"
    assert setting.times.prefill_attention.seconds(10) == pytest.approx(19e-6)
    # 2 x 3 heads of 64 numbers in two bytes, over 768 MB/s
    assert setting.times.copy.seconds(1) == pytest.approx(1e-6)
    assert setting.granule_rows == 16
    assert setting.interference.performance(ResourceLane.MEMORY, 0.5) == pytest.approx(0.8)
    assert setting.interference.shares == (0.5, 1.0)


def test_a_line_has_no_negative_part() -> None:
    attention = [
        OperatorTime(name, 100, rows, seconds)
        for name in ("DecAttn", "PfAttn")
        for rows, seconds in ((16, 1e-6), (64, 8e-6))
    ]
    setting = profiled_setting(profile(attention), model_named("smollm2-135m"), DenseBatch(64, MeanLengths(100, 1)))
    assert setting.times.decode_attention.fixed_s == 0.0
    assert setting.times.decode_attention.row_s > 0.0

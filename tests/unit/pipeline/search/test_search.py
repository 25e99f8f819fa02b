"""The whole search with little time: rules kept, copies added, throughput by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.pipeline.operators.layer import LayerLayout, edges, layer_operators, split
from services.pipeline.operators.setting import Setting
from services.pipeline.operators.times import layer_times
from services.pipeline.reports.prediction import dense_batch, head_s, num_tokens, throughput
from services.pipeline.reports.search_report import optimal_layer_s, pipeline_file
from services.pipeline.schedules.schedule import PartSlot, Schedule
from services.pipeline.search.beginnings import beginnings
from services.pipeline.search.ceiling import least_period_s
from services.pipeline.search.search import QUICK, Found, Stage, add_copies, refine, search
from shared.config.hardware import model_named
from shared.config.pipelines.pipeline_file import PUBLISHED
from shared.pipelines.batch import DenseBatch, MeanLengths, largest_batch
from shared.pipelines.calibration import calibrate
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.machine import machine
from shared.pipelines.paper import FIGURE_7, FIGURE_9, FIGURE_9_LENGTHS, TRACE_LENGTHS

SHORT = replace(QUICK, num_plays=600, structure_s=0.1, allocation_s=0.1)
A100, A100_8 = machine("a100", 1), machine("a100", 8)
BATCH = DenseBatch(1024, MeanLengths(1024, 512))
SMALL, LARGE = model_named("llama-3-8b"), model_named("llama-2-70b")


def frozen_clock() -> float:
    return 0.0


@pytest.mark.parametrize(("name", "num"), [("llama-3-8b", 1), ("llama-2-70b", 8), ("mixtral-8x7b", 8)])
def test_a_found_pipeline_keeps_all_rules(name: str, num: int) -> None:
    model, group = model_named(name), machine("a100", num)
    setting = Setting.published(group, model, BATCH)
    found = search(setting, SHORT, frozen_clock)
    operators = setting.operators(found.layout)
    parts = [slot.part for slot in found.schedule.slots]
    cuts = {one.name: [part.first_row for part in parts if part.operator == one.name][1:] for one in operators}
    assert split(operators, cuts) == parts, "every row of every operator once"
    found.schedule.check(edges(operators, parts), TABLE_3)
    assert least_period_s(parts, TABLE_3) <= found.schedule.period_s + 1e-12, "no order is better than none at all"
    assert optimal_layer_s(group, model, BATCH) < found.schedule.period_s
    assert found.sequential_s < found.nano_only_s, "parts read weights again"


def test_an_engines_pipeline_has_its_decodes_in_one_run() -> None:
    """In a step of 1,024 rows, 341 decodes come first, and prompts behind them."""
    setting = replace(Setting.published(A100, SMALL, BATCH), may_spread=False)
    assert {one.layout.is_spread for one in beginnings(setting, {}, 3)} == {False}
    assert 384 in {place for one in beginnings(setting, {}, 3) for place in one.candidate.cuts["KQV"]}, "behind decodes"
    found = search(setting, SHORT, frozen_clock)
    rows = {
        (slot.part.operator, row) for slot in found.schedule.slots for row in (slot.part.first_row, slot.part.end_row)
    }
    assert {row for name, row in rows if name == "DecAttn"} >= {0, 341}
    assert {row for name, row in rows if name == "PfAttn"} >= {341, 1024}
    assert {True, False} == {one.layout.is_spread for one in beginnings(replace(setting, may_spread=True), {}, 3)}


def test_copies_are_one_more_operator_of_a_lane_of_their_own() -> None:
    setting = Setting.published(A100, SMALL, BATCH)
    found = search(setting, SHORT, frozen_clock)
    copied = add_copies(found, setting, SHORT, frozen_clock)
    (copy,) = (slot for slot in copied.schedule.slots if slot.part.lane is ResourceLane.COPY)
    assert (copy.part.first_row, copy.part.end_row) == (0, 1024)
    # a launch, and 1,024 rows of 2 x 8 heads of 128 numbers over the link to the host
    assert copy.part.best_s == pytest.approx(calibrate().launch_s + 1024 * 2 * 8 * 128 * 2 / 32e9)
    assert copied.sequential_s == found.sequential_s
    written = pipeline_file(copied, A100, SMALL, BATCH, PUBLISHED)
    assert {one.lane for one in written.operators} == {"compute", "memory", "copy"}
    assert min(one.start_s for one in written.operators) == 0.0


def test_a_pipeline_that_is_searched_on_is_no_worse_and_keeps_all_rules() -> None:
    setting = Setting.published(A100, SMALL, BATCH)
    found = search(setting, SHORT, frozen_clock)
    refined = refine(found, setting, SHORT, frozen_clock)
    assert refined.schedule.period_s <= found.schedule.period_s
    operators = setting.operators(refined.layout)
    refined.schedule.check(edges(operators, [slot.part for slot in refined.schedule.slots]), TABLE_3)


def test_dense_batches_fill_memory_up_to_what_is_of_use() -> None:
    assert dense_batch(A100_8, LARGE, MeanLengths(512, 1024)).num_rows == 2048
    assert dense_batch(A100_8, LARGE, MeanLengths(512, 0)).num_rows == 2048, "nothing is decoded"
    assert dense_batch(A100, SMALL, MeanLengths(1024, 512)).num_rows == 1152, "1,143 fit; whole tiles"


def test_rows_of_a_tile_that_memory_has_no_decodes_for_are_no_tokens() -> None:
    lengths = MeanLengths(1024, 512)
    batch = dense_batch(A100, SMALL, lengths)
    assert num_tokens(A100, SMALL, batch) == largest_batch(A100, SMALL, lengths) == pytest.approx(1143, abs=1)
    assert num_tokens(A100_8, LARGE, dense_batch(A100_8, LARGE, lengths)) == 2048


def test_throughput_by_hand() -> None:
    part = split(layer_operators(layer_times(A100, SMALL, BATCH), BATCH, 1, LayerLayout(0)), {})[0]
    schedule = Schedule(2e-3, (PartSlot(part, 0.0, 3e-3, 1.0),))
    found = Found(LayerLayout(0), schedule, 3e-3, 4e-3, Stage(0, 0, 0), Stage(0, 0, 0))
    table = 128_256 * 4096
    behind_s = 2 * (1024 / 3) * table / (312e12 * calibrate().rate_share["UG"]) + 2 * table / 2000e9
    assert head_s(A100, SMALL, BATCH) == pytest.approx(behind_s)
    tokens = throughput(found, A100, SMALL, BATCH)
    assert tokens.non_overlap == pytest.approx(1024 / (32 * 3e-3 + behind_s))
    assert tokens.nano_only == pytest.approx(1024 / (32 * 4e-3 + behind_s))
    assert tokens.pipeline == pytest.approx(1024 / (31 * 2e-3 + 3e-3 + behind_s))


def test_figures_have_lengths() -> None:
    assert set(FIGURE_7) == (set(FIGURE_9_LENGTHS) - {"512-0"}) | set(TRACE_LENGTHS)
    assert set(FIGURE_9) == set(FIGURE_9_LENGTHS)

"""Weaver's evaluation as predicted: what it is calibrated by, and what it meets without."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from gpu_node.graph.program import OperatorKind
from services.simulator.weaving import paper
from services.simulator.weaving.azure_conversations import azure_conversations
from services.simulator.weaving.decode_books import BLOCK_TOKENS
from services.simulator.weaving.figures import NUM_RUNS, RATE_PER_S, figures
from services.simulator.weaving.llama_on_device import A100, LAUNCH_S, MEAN_CONTEXT, llama_on
from services.simulator.weaving.operator_times import DecodeStep
from services.simulator.weaving.runs import Control, OfferedLoad, RunLength, dedicated, woven

BED = llama_on(A100)
LENGTHS = azure_conversations()
LOAD = OfferedLoad(RATE_PER_S, RATE_PER_S * paper.COLD_PER_HOT, LENGTHS)
SHORT = RunLength(warm_s=30.0, measured_s=60.0)


def test_lengths_are_those_of_which_the_papers_numbers_follow() -> None:
    outputs = sum(answer for _, answer in LENGTHS)
    assert len(LENGTHS) == 16_528
    assert round(outputs / len(LENGTHS)) == 232
    context = sum(answer * (prompt + answer / 2) for prompt, answer in LENGTHS) / outputs
    assert round(context) == MEAN_CONTEXT
    # Little's law: 118 = 15 x 232 x 33.8 ms
    assert RATE_PER_S * 232 * paper.DEDICATED_15["hot_tpot_s"] == pytest.approx(118, rel=0.005)


def test_constants_that_follow_in_closed_form() -> None:
    batch = int(paper.DEDICATED_15["hot_batch"])
    step_s = BED.plain.total_s(DecodeStep(batch, batch * MEAN_CONTEXT)) + BED.host_s
    assert step_s == pytest.approx(paper.DEDICATED_15["hot_tpot_s"])
    head = BED.plain.places(OperatorKind.LINEAR)[-1]
    # a few rows; beside the weights, their logits are written
    assert BED.plain.seconds(DecodeStep(4, 4_000))[head] == pytest.approx(paper.LM_HEAD_S, rel=0.005)
    assert BED.num_blocks * BLOCK_TOKENS == pytest.approx(118 * 1_101 / 0.889, rel=0.001)
    assert BED.attention_s(0, 0) == 0.0
    assert BED.attention_s(52, 52_000) > LAUNCH_S


@pytest.mark.slow
def test_what_the_paper_measures_at_15_requests_a_second() -> None:
    alone, together, half = dedicated(BED, LOAD, SHORT), woven(BED, LOAD, SHORT, 0.45), woven(BED, LOAD, SHORT, 0.5)
    for name, known in paper.DEDICATED_15.items():
        assert getattr(alone, name) == pytest.approx(known, rel=0.1)
    for name, known in paper.WOVEN_15.items():
        assert getattr(together, name) == pytest.approx(known, abs=0.05)
    assert together.remote_share == pytest.approx(0.45, abs=0.01)
    assert -0.2 < half.hot_tpot_s / alone.hot_tpot_s - 1 < -0.1
    assert 0.002 < half.cold_tpot_s - alone.cold_tpot_s < 0.005
    # equation 3, over tasks and polls that do not know of it
    assert half.wait_s == pytest.approx(half.formula_wait_s, rel=0.25)


def test_polls_and_splits_shorten_waits() -> None:
    short = RunLength(warm_s=10.0, measured_s=10.0)
    host, polls, splits = (woven(BED, LOAD, short, 0.5, control) for control in Control)
    assert host.wait_s > 20 * polls.wait_s
    assert polls.wait_s > 1.5 * splits.wait_s
    assert host.hot_tpot_s > 2 * polls.hot_tpot_s
    assert polls.hot_tpot_s > splits.hot_tpot_s


def test_a_node_that_is_always_full_does_the_most_that_it_can() -> None:
    full = dedicated(BED, OfferedLoad(1.0, 1.0, LENGTHS, is_full=True), RunLength(warm_s=20.0, measured_s=20.0))
    assert full.hot_kv_share > 0.97
    assert full.hot_per_s > 15.0, "more than is asked of it"


@pytest.mark.slow
def test_figures_are_counted_and_stand_beside_the_papers() -> None:
    counted: list[int] = []
    found = figures(LENGTHS, RunLength(warm_s=0.5, measured_s=1.5), counted.append)
    assert counted == list(range(1, NUM_RUNS + 1))
    assert set(found) == {"fig4", "fig5a", "fig5b", "fig6", "fig7a", "calibration"}
    known = list(chain.from_iterable(pairs(values) for values in found.values()))
    assert len(known) > 25
    assert all(isinstance(one["ours"], float) for one in known)


def pairs(values: Any) -> list[dict[str, Any]]:
    if not isinstance(values, dict):
        return []
    if set(values) == {"ours", "paper"}:
        return [values]
    return [one for inner in values.values() for one in pairs(inner)]

"""Plays by hand: who takes less rather than wait, periods that do not settle, lanes that wait for each other."""

from __future__ import annotations

import pytest

from services.pipeline.schedules.elastic import Candidate, ElasticLayer
from shared.pipelines.lanes import TABLE_3, UNDISTURBED, ResourceLane
from tests.unit.pipeline.layers import US, operator, two_lanes

BESIDE = [
    operator("A", ResourceLane.COMPUTE, (0, 128), 100, 0),
    operator("M", ResourceLane.MEMORY, (0, 128), 40, 0, ("A", 0)),
]
"""M of a layer beside A of the next."""


def test_a_part_takes_what_is_free_rather_than_wait() -> None:
    layer = ElasticLayer(BESIDE, TABLE_3)
    # both want .6, and M has waited for longer: the next layer's A takes .4
    outcome = layer.play(Candidate({}, (0.0, 0.0), (6, 6)))
    assert outcome is not None
    assert outcome.period_s == pytest.approx(100 * US / 0.4)
    assert outcome.shares[6:8] == (4, 6)


def test_a_part_waits_where_less_than_half_of_what_it_wants_is_free() -> None:
    layer = ElasticLayer(BESIDE, TABLE_3)
    outcome = layer.play(Candidate({}, (0.0, 0.0), (9, 3)))  # M has .3, A would have .7; M waits for none
    assert outcome is not None
    assert outcome.shares[6:8] == (7, 3)
    outcome = layer.play(Candidate({}, (0.0, 0.0), (9, 6)))  # M has .6, and .4 is too little for A
    assert outcome is not None
    assert outcome.period_s == pytest.approx(100 * US / 0.9 + 40 * US / 0.825)


def test_a_schedule_has_the_shares_that_were_taken() -> None:
    layer, chosen = ElasticLayer(BESIDE, TABLE_3), Candidate({}, (0.0, 0.0), (6, 6))
    outcome = layer.play(chosen)
    assert outcome is not None
    schedule = layer.schedule(chosen, outcome)
    assert schedule is not None
    schedule.check(layer.edges(chosen), TABLE_3)
    assert [slot.share for slot in schedule.slots] == [0.4, 0.6]
    assert schedule.period_s == pytest.approx(100 * US / 0.4)


def test_a_play_ends_where_the_period_is_longer_than_asked_for() -> None:
    layer, chosen = ElasticLayer(BESIDE, TABLE_3), Candidate({}, (0.0, 0.0), (6, 4))
    assert layer.play(chosen, limit_s=160 * US) is None
    assert layer.play(chosen, limit_s=170 * US) is not None


def test_lanes_that_wait_for_each_other_for_ever() -> None:
    # the product of the second half is wanted a layer before that of the first, whose collective is wanted first
    layer = ElasticLayer(two_lanes(256), TABLE_3)
    cuts: dict[str, tuple[int, ...]] = {"A": (128,), "N": (128,)}
    assert layer.play(Candidate(cuts, (0.0, -2.0, 0.5, 0.5), (5, 5, 5, 5))) is None


def test_undisturbed_lanes_have_a_device_each() -> None:
    layer = ElasticLayer(BESIDE, UNDISTURBED)
    outcome = layer.play(Candidate({}, (0.0, 0.0), (1, 1)))
    assert outcome is not None
    assert outcome.period_s == pytest.approx(100 * US)

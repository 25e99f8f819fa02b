"""What a heartbeat says of a node, and when that is news."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.scheduler.nodes import has_changed, node_state
from shared.estimator.batching import PRIOR_SWAP_S
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeState, NodeUp
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost

RATES = [ModelRate(model, StepCost(1.0, 0.0, 0.0), 100, 1, load_s) for model, load_s in (("a", 0.0), ("b", 7.0))]


def beat(model: str = "a", loading: str = "", rates: list[ModelRate] = RATES, swap_s: float = 5.0) -> Heartbeat:
    return Heartbeat(
        node="n0",
        epoch="n0.1",
        facts=NodeFacts(device="cpu", swap_s=swap_s, rates=rates),
        model=model,
        num_blocks=100,
        num_free_blocks=100,
        num_running=0,
        num_waiting=0,
        loading=loading,
    )


def begun(now: float = 100.0) -> NodeState:
    """The node at the first heartbeat that tells of its load."""
    return node_state(beat(loading="b"), node_state(beat(), None, now - 1.0), now)


def test_a_node_that_loads_nothing_holds_its_model() -> None:
    known = node_state(beat(), None, 100.0)
    assert (known.model, known.ready_at_s, known.is_loading) == ("a", 0.0, False)
    assert known.ready_in_s(100.0) == 0.0


def test_a_node_that_loads_has_the_new_model_when_that_takes_what_it_took_before() -> None:
    known = begun()
    assert (known.model, known.ready_at_s, known.is_loading) == ("b", 100.0 + 7.0, True)
    assert [known.ready_in_s(now) for now in (100.0, 103.0, 107.0, 110.0)] == [7.0, 4.0, 0.0, 0.0]


def test_a_model_that_was_never_there_takes_what_the_last_swap_took() -> None:
    assert node_state(beat(loading="c"), None, 100.0).ready_at_s == 100.0 + 5.0
    assert node_state(beat("", "c", [], swap_s=0.0), None, 100.0).ready_at_s == 100.0 + PRIOR_SWAP_S


def test_later_heartbeats_of_one_load_do_not_put_it_off() -> None:
    later = node_state(beat(loading="b"), begun(), 106.0)
    assert later.ready_at_s == 107.0
    assert node_state(beat(loading="b"), later, 120.0).ready_at_s == 107.0, "though it takes longer"


def test_another_load_begins_anew() -> None:
    assert node_state(beat(loading="c"), begun(), 102.0).ready_at_s == 102.0 + 5.0
    loaded = node_state(beat("b"), begun(), 107.0)
    assert (loaded.model, loaded.ready_at_s) == ("b", 0.0)
    assert node_state(beat("b", "b"), loaded, 110.0).ready_at_s == 117.0


def test_a_load_that_failed_leaves_the_model_before() -> None:
    failed = msgspec.structs.replace(beat(), facts=msgspec.structs.replace(beat().facts, broken_models=["b"]))
    known = node_state(failed, begun(), 101.0)
    assert (known.model, known.ready_at_s) == ("a", 0.0)


@pytest.mark.parametrize("news", [{"lacks": ["beam search"]}, {"phases": "prefill"}])
def test_it_is_news_what_an_engine_lacks_and_which_phases_it_serves(news: dict[str, Any]) -> None:
    told = msgspec.structs.replace(beat(), facts=msgspec.structs.replace(beat().facts, **news))
    assert has_changed(node_state(beat(), None, 99.0), node_state(told, None, 99.0))


def test_it_is_news_when_a_load_begins_and_when_it_ends_and_not_between() -> None:
    before, loading = node_state(beat(), None, 99.0), begun()
    assert has_changed(before, loading)
    assert not has_changed(loading, node_state(beat(loading="b"), loading, 101.0))
    assert has_changed(loading, node_state(beat("b"), loading, 107.0))
    assert has_changed(node_state(beat("b"), None, 99.0), node_state(beat("b", "b"), None, 100.0))


def test_the_queue_manager_is_told_when_it_is_ready() -> None:
    told = NodeUp(epoch="n0.1", known=begun())
    assert (told.known.model, told.known.ready_at_s) == ("b", 107.0)


def test_what_is_found_in_caches_is_news_where_it_is_another_tenth() -> None:
    def cached(share: float) -> NodeState:
        return node_state(beat(rates=[replace(RATES[0], cached_share=share)]), None, 100.0)

    assert not has_changed(cached(0.2), cached(0.29))
    assert has_changed(cached(0.2), cached(0.31))


def test_what_guesses_bring_is_news_where_it_is_a_tenth_more_or_less() -> None:
    def guessed(rows: float, tokens: float) -> NodeState:
        return node_state(beat(rates=[replace(RATES[0], decode=DecodeYield(rows, tokens))]), None, 100.0)

    assert not has_changed(guessed(3.0, 2.0), guessed(3.2, 2.1))
    assert has_changed(guessed(3.0, 2.0), guessed(3.0, 2.3))
    assert has_changed(guessed(3.0, 2.0), guessed(3.4, 2.0))


def test_it_is_news_how_many_rows_a_models_steps_have() -> None:
    own = node_state(beat(rates=[replace(RATES[0], step_tokens=512)]), None, 100.0)
    assert has_changed(node_state(beat(rates=RATES[:1]), None, 99.0), own)

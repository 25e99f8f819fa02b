"""When members of a group start: with what stands before it, with newcomers, and as long as they are patient."""

from __future__ import annotations

import pytest

from services.queue_manager.waits.group_wait import SUM_ERROR, GroupWait, Served, Slack
from shared.estimator.estimator import GroupForecast, forecast
from shared.estimator.overtaking import Stream
from shared.estimator.wait import Wait
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ModelRate, StepCost

HALF = Stream(share=0.5, square_s=0.0, horizon_s=1e6)
NO_TIME = Slack(first_s=0.0, member_s=0.0, pace=1.0)
"""Who has it takes a place as soon as there is one."""
PATIENT = Slack(first_s=1e6, member_s=0.0, pace=0.5)


def outlook(full: Served, small: Served | None = None, slack: Slack = NO_TIME) -> GroupWait:
    return GroupWait(full, small, slack, lambda wait: wait)


def of_one(num_running: int = 2, places: int = 2) -> GroupForecast:
    """Of one that waits behind others that run, two of which fill the batch; lengths of answers are not known."""
    rate = ModelRate("a", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    load = GroupLoad(
        "g",
        1e6,
        model="a",
        num_waiting=1,
        num_running=num_running,
        mean_output_tokens=10.0,
        running_output_tokens=10.0 * num_running,
    )
    (one,) = forecast(NodeState("n0", "a", max_num_seqs=places, rates=[rate]), [load])
    return one


def test_behind_the_head_of_a_queue_it_is_known_only_how_long_all_before_takes() -> None:
    place, prompt = outlook(Served(None, [], behind_s=4.0)).place_and_prompt(0)
    assert (place, prompt) == (Wait(4.0, SUM_ERROR * 4.0), Wait(0.0, 0.0))


def test_newcomers_go_ahead_of_what_stands_behind_the_head_too() -> None:
    """Half of the device is theirs: what takes W alone takes 2 W (shared.estimator.overtaking), all of it."""
    alone = of_one().place_and_prompt(0)[0].mean_s
    assert alone > 0.0
    place, _ = outlook(Served(of_one(), [HALF], behind_s=4.0)).place_and_prompt(0)
    assert place.mean_s == pytest.approx(2 * (alone + 4.0))
    place, _ = outlook(Served(None, [HALF], behind_s=4.0)).place_and_prompt(0)
    assert place.mean_s == pytest.approx(2 * 4.0)


def test_who_is_patient_waits_for_the_batch_that_leaves_headroom_also_behind_the_head() -> None:
    full, small = Served(None, [], behind_s=4.0), Served(None, [], behind_s=7.0)
    assert outlook(full, small).place_and_prompt(0)[0].mean_s == pytest.approx(4.0)
    assert outlook(full, small, PATIENT).place_and_prompt(0)[0].mean_s == pytest.approx(7.0)


def test_a_request_that_cannot_wait_for_headroom_computes_its_prompt_in_the_full_batch_too() -> None:
    """Behind one that runs, where there are two places, it begins at once: half a step is left, one is its own."""
    full, small = (Served(of_one(num_running=1, places=places), [], 0.0) for places in (2, 1))
    place, prompt = outlook(full, small).place_and_prompt(0)
    assert place.mean_s == 0.0
    assert prompt.mean_s == pytest.approx(0.05 + 0.1)
    place, prompt = outlook(full, small, PATIENT).place_and_prompt(0)
    assert place.mean_s > 0.0
    assert prompt.mean_s == pytest.approx(0.1), "behind a full batch it begins with a step"


def test_prompts_of_newcomers_are_in_the_same_steps() -> None:
    """Ten a second, each with a prompt of 20 ms: the variance of 1.5 of them more or less in 0.15 s."""
    alone = Served(of_one(num_running=1), [], 0.0).place_and_prompt(0)[1]
    beside = Served(of_one(num_running=1), [], 0.0, prompts_s=10 * 0.02**2).place_and_prompt(0)[1]
    assert beside.mean_s == alone.mean_s == pytest.approx(0.15)
    assert beside.std_s**2 - alone.std_s**2 == pytest.approx(1.5 * 0.02**2)

"""No order of steps, deaths and deadlines makes a link lose a task, tear a row or wait for ever; planted faults do."""

from __future__ import annotations

import pytest

from tests.gpu_node.offload.link_model import AT_HOME, DEADLINE, RECEIVER_DIES, SENDER_DIES, Protocol, State, is_settled
from tests.gpu_node.offload.link_search import ViolationError, search

GOES_WRONG = {AT_HOME, DEADLINE, RECEIVER_DIES, SENDER_DIES}
CONNECTED = State(is_attached=True, its_generation=1, accepted=1)


KINDS = ["aaa", "pac", "ppc", "cpp", "cpa"]
"""What the three tasks do: attend, put a block there, call it back."""


def goes_well(name: str) -> bool:
    return name not in GOES_WRONG


def anything(_name: str) -> bool:
    return True


@pytest.mark.parametrize("kinds", KINDS)
def test_where_nothing_goes_wrong_every_answer_is_read_and_nobody_needs_a_deadline(kinds: str) -> None:
    states = search(State(), Protocol(kinds=kinds), goes_well)
    assert {state.results for state in states if is_settled(state)} == {"RRR"}


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS)
def test_whatever_goes_wrong_no_answer_is_torn_or_wrong_and_every_task_is_settled(kinds: str) -> None:
    states = search(CONNECTED, Protocol(kinds=kinds), anything)
    settled = {state.results for state in states if is_settled(state)}
    assert settled == {a + b + c for a in "RL" for b in "RL" for c in "RL"}


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (Protocol(completes_last=False), "torn or wrong"),
        (Protocol(bumps_last=False), "torn or wrong"),
        (Protocol(checks_generation=False), "torn or wrong"),
        (Protocol(waits_for_acceptance=False), "torn or wrong"),
        (Protocol(counts_gathered=False), "torn or wrong"),
        (Protocol(knows_epochs=False), "torn or wrong"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(k for k, ok in vars(value).items() if not ok),
)
def test_a_planted_fault_is_found(fault: Protocol, what: str) -> None:
    with pytest.raises(ViolationError, match=what):
        search(CONNECTED, fault, anything)


@pytest.mark.parametrize(
    "fault",
    [
        Protocol("pac", bumps_last=False),
        Protocol("pac", completes_last=False),
        Protocol("pac", checks_generation=False),
        Protocol("pac", waits_for_acceptance=False),
        Protocol("cpp", counts_gathered=False),
        Protocol("pac", knows_epochs=False),
    ],
    ids=lambda value: "-".join(k if k != "kinds" else value.kinds for k, ok in vars(value).items() if ok != True),  # noqa: E712
)
def test_a_planted_fault_is_found_where_blocks_move(fault: Protocol) -> None:
    with pytest.raises(ViolationError, match="torn or wrong"):
        search(CONNECTED, fault, anything)


def test_a_sleeper_that_does_not_look_again_is_found() -> None:
    with pytest.raises(ViolationError, match="waits for ever"):
        search(State(), Protocol(looks_again=False), goes_well)

"""An answer in a transcript that nobody has asked for is found."""

from __future__ import annotations

import pytest

from shared.bus import streams
from shared.messages.nodes.placement import GroupLoad, PlacementProblem, Plan, PlanRequest, Solved
from shared.service.core import Send, Solve
from tests.scenarios.questions import Questions


def load(group: str) -> GroupLoad:
    return GroupLoad(group=group, model="a", deadline_s=9.0)


def asked(*versions: int) -> Questions:
    questions = Questions()
    for version in versions:
        questions.see(Send(streams.SCHEDULER, PlanRequest(version=version, groups=[load("g0"), load("g1")])))
    return questions


def test_a_plan_may_answer_late_leave_groups_out_and_name_nodes_that_are_gone() -> None:
    questions = asked(1, 2)
    questions.hear(Plan(version=2, queues={"n0": ["g1", "g0"]}))
    questions.hear(Plan(version=1, queues={"gone": ["g1"]}))


def test_a_question_that_was_asked_twice_is_answered_twice() -> None:
    questions = asked(4, 4)
    questions.hear(Plan(version=4, queues={}))
    questions.hear(Plan(version=4, queues={}))
    with pytest.raises(AssertionError, match=r"plan 4 answers no question; open are \[\]"):
        questions.hear(Plan(version=4, queues={}))


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (Plan(version=2, queues={}), r"plan 2 answers no question; open are \[1\]"),
        (Plan(version=1, queues={"n0": ["g0", "g7"]}), r"plan 1 places \['g7'\], which its question did not hold"),
        (Plan(version=1, queues={"n0": ["g0"], "n1": ["g0"]}), "plan 1 places a group twice"),
    ],
)
def test_a_plan_that_answers_something_else_is_found(plan: Plan, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        asked(1).hear(plan)


def test_a_core_that_answers_what_it_was_not_asked_is_found() -> None:
    questions = Questions()
    questions.hear(PlanRequest(version=3, groups=[]))
    questions.see(Send(streams.QUEUE, Plan(version=3, queues={})))
    with pytest.raises(AssertionError, match="plan 3 answers no question"):
        questions.see(Send(streams.QUEUE, Plan(version=3, queues={})))


def test_what_was_solved_is_what_was_being_solved() -> None:
    questions = asked(5)
    questions.see(Solve(PlacementProblem(version=5, now_s=0.0, nodes=[], groups=[])))
    questions.hear(Solved(plan=Plan(version=5, queues={})))
    with pytest.raises(AssertionError, match="version 5 is solved, which nobody solves"):
        questions.hear(Solved(plan=Plan(version=5, queues={})))

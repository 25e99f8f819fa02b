"""The conversation about plans in a transcript: whatever is answered has been asked, and is answered once.

A transcript gives one service its inputs by hand, so an answer could be made up that nobody asked for, and what a core
makes of it shows nothing. A question that is asked again may be answered as often; an answer may be late.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.messages.message import Message
from shared.messages.nodes.placement import Plan, PlanRequest, Solved
from shared.service.core import Effect, Send, Solve


class Questions:
    """Follows inputs and effects of one core; raises `AssertionError` for an answer that has no question."""

    def __init__(self) -> None:
        self._open: list[PlanRequest] = []
        self._solving: list[int] = []
        """Versions of problems that are being solved."""

    def hear(self, message: Message) -> None:
        """An input, before the core has it."""
        if isinstance(message, Solved):
            version = message.plan.version
            assert version in self._solving, f"version {version} is solved, which nobody solves: {self._solving}"
            self._solving.remove(version)
        self._follow(message)

    def see(self, effect: Effect) -> None:
        """What the core answers."""
        if isinstance(effect, Solve):
            self._solving.append(effect.problem.version)
        elif isinstance(effect, Send):
            self._follow(effect.message)

    def _follow(self, message: Message) -> None:
        if isinstance(message, PlanRequest):
            self._open.append(message)
        elif isinstance(message, Plan):
            self._answer(message)

    def _answer(self, plan: Plan) -> None:
        question = next((one for one in self._open if one.version == plan.version), None)
        versions = [one.version for one in self._open]
        assert question is not None, f"plan {plan.version} answers no question; open are {versions}"
        self._open.remove(question)
        placed = list(_groups(plan))
        unasked = set(placed) - {load.group for load in question.groups}
        assert not unasked, f"plan {plan.version} places {sorted(unasked)}, which its question did not hold"
        assert len(set(placed)) == len(placed), f"plan {plan.version} places a group twice: {placed}"


def _groups(plan: Plan) -> Iterator[str]:
    for queue in plan.queues.values():
        yield from queue

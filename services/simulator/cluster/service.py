"""A service in the simulator: a core behind the in-memory bus, where `shared.service.driver` stands live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from services.simulator.cluster.memory_bus import MemoryBus
from shared.messages.message import Message, Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.placement import PlacementProblem, PlanSolver, Solved
from shared.service.core import Core, Drop, Effect, Send, Solve

SolveTime = Callable[[PlacementProblem], float]
"""Seconds from a question for a plan to its answer."""


C = TypeVar("C", bound=Core)


class SimulatedService(Generic[C]):
    """Feeds a core from its inbox, carries out its effects, wakes it in time."""

    def __init__(
        self,
        bus: MemoryBus,
        inbox: str,
        make_core: Callable[[], C],
        *,
        solve: PlanSolver | None = None,
        solve_s: SolveTime = lambda _: 0.0,
    ) -> None:
        self.core = make_core()
        self._make_core = make_core
        self._bus = bus
        self._inbox = inbox
        self._solve = solve
        self._solve_s = solve_s
        self._wake_scheduled: float | None = None
        bus.subscribe(inbox, self._handle)
        self._wake_in_time()

    def restart(self) -> None:
        """Replace the core by one that is restored from a snapshot of it, as after a death of the process."""
        fresh = self._make_core()
        fresh.restore(self.core.snapshot())
        self.core = fresh

    def _handle(self, message: Message, now: float) -> None:
        for effect in self.core.handle(cast("AnyMessage", message), now):
            self._do(effect)
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        wake_at = self.core.wake_at
        if wake_at is None:
            return
        wake_at = max(wake_at, self._bus.now)
        if self._wake_scheduled is None or wake_at < self._wake_scheduled:
            self._wake_scheduled = wake_at
            self._bus.at(wake_at, self._wake)

    def _wake(self) -> None:
        if self._bus.now != self._wake_scheduled:
            return  # an earlier one has taken its place, and asked when the next is due
        self._wake_scheduled = None
        self._handle(Tick(), self._bus.now)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(stream, message):
                self._bus.send(stream, message)
            case Drop(key):
                self._bus.drop(key)
            case Solve(problem):
                assert self._solve is not None, "the core asks to solve but was given no solver"
                plan = self._solve(problem)
                due_s = self._bus.now + self._solve_s(problem)
                self._bus.at(due_s, lambda: self._bus.send(self._inbox, Solved(plan=plan)))

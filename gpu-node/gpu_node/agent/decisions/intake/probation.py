"""Requests with which an engine has died begin by themselves: should another die, no other is taken for the reason.

A suspect (`Payload.num_crashes`) begins when all that the engine has have brought a token, and until it has brought one
no other begins. A request that has brought a token goes on beside it: it is not the reason, whatever happens. Requests
are held back in the order in which they were pulled; nothing is pulled while any is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gpu_node.agent.decisions.actions import StartAttempt
from gpu_node.agent.decisions.ledger import Ledger
from shared.messages.requests.requests import Attempt


@dataclass(frozen=True, slots=True)
class Beginning:
    """A request that was pulled, with what tells the engine to run it."""

    attempt: Attempt
    start: StartAttempt
    is_suspect: bool


class Probation:
    """Says which requests begin. It holds none back where there is no suspect."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: deque[Beginning] = deque()
        self._unproven: dict[str, Attempt] = {}
        """By request, what the engine was given that has not brought a token yet."""
        self._suspect: Attempt | None = None
        """Of those, the one that no other may begin beside."""

    @property
    def holds_any(self) -> bool:
        """A request waits here: nothing is to be pulled."""
        return bool(self._held)

    @property
    def blamed(self) -> list[Attempt]:
        """The only one that can be the reason, should the engine die now; empty where it may be any."""
        self._look()
        return [self._suspect] if self._suspect is not None else []

    def add(self, beginning: Beginning) -> None:
        """A request is to begin, behind those that are held back."""
        # an attempt that gave way and is here again has left the engine meanwhile: it must not wait for itself
        self.prove(beginning.attempt)
        self._look()
        self._held.append(beginning)

    def prove(self, attempt: Attempt) -> None:
        """It has brought a token."""
        if self._unproven.get(attempt.request_id) == attempt:
            del self._unproven[attempt.request_id]

    def begin(self) -> list[StartAttempt]:
        """Those whose turn it is."""
        starts: list[StartAttempt] = []
        while self._held:
            self._look()
            first = self._held[0]
            if self._ledger.find(first.attempt.request_id, first.attempt.attempt) is None:
                self._held.popleft()  # given up meanwhile
                continue
            if self._suspect is not None or (first.is_suspect and self._unproven):
                break
            self._held.popleft()
            self._unproven[first.attempt.request_id] = first.attempt
            self._suspect = first.attempt if first.is_suspect else None
            starts.append(first.start)
        return starts

    def take_back(self, attempts: list[Attempt]) -> list[Attempt]:
        """Those of these that are held back begin no more; answers them."""
        wanted = set(attempts)
        taken = [held.attempt for held in self._held if held.attempt in wanted]
        self._held = deque(held for held in self._held if held.attempt not in wanted)
        return taken

    def _look(self) -> None:
        """A request that has left the engine is not awaited."""
        gone = [one for one in self._unproven.values() if self._ledger.find(one.request_id, one.attempt) is None]
        for attempt in gone:
            del self._unproven[attempt.request_id]
        if self._suspect is not None and self._unproven.get(self._suspect.request_id) != self._suspect:
            self._suspect = None

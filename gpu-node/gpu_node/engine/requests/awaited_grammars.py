"""Requests whose language is being compiled. They are in no scheduler's line, so they hold up no other."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.grammar import Grammar, Grammars
from gpu_node.engine.requests.image import SerialisedImage
from shared.messages.requests.payload import Payload


@dataclass(frozen=True, slots=True)
class AwaitingRequest:
    """A request that is to be queued once its grammar is ready."""

    payload: Payload
    image: SerialisedImage | None
    grammar: Grammar


class AwaitedGrammars:
    """In the order in which they came; those whose grammar is ready sooner go first."""

    def __init__(self, grammars: Grammars | None) -> None:
        """Without ``grammars``, none are compiled, and no request waits."""
        self._grammars = grammars
        self._awaiting: dict[str, AwaitingRequest] = {}

    def __len__(self) -> int:
        return len(self._awaiting)

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        found = self._awaiting.get(request_id)
        return None if found is None else found.payload.attempt

    def put(self, payload: Payload, image: SerialisedImage | None) -> bool:
        """Compile what the payload's output has to be; False where that is nothing, or nothing is compiled.

        An older attempt of the request is replaced.
        """
        constraint = payload.sampling.constraint
        if constraint is None or self._grammars is None:
            return False
        grammar = self._grammars.compile(payload.model, constraint)
        self._awaiting[payload.request_id] = AwaitingRequest(payload, image, grammar)
        return True

    def take_ready(self) -> list[AwaitingRequest]:
        """Those whose grammar is ready are here no longer."""
        ready = [one for one in self._awaiting.values() if one.grammar.is_ready]
        for one in ready:
            del self._awaiting[one.payload.request_id]
        return ready

    def wait(self, timeout_s: float) -> None:
        """Until a grammar is ready, but no longer; not at all where none is awaited."""
        if self._awaiting and self._grammars is not None:
            self._grammars.wait(timeout_s)

    def drop(self, request_id: str) -> bool:
        """Forget a request; False if it is not here."""
        return self._awaiting.pop(request_id, None) is not None

    def clear(self) -> None:
        """Forget all."""
        self._awaiting.clear()

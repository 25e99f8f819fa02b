"""How fast a request gets its tokens once its prompt has been computed, learnt from those that finished."""

from __future__ import annotations

from typing import Protocol

import msgspec

from services.queue_manager.learnt.weights_at import WeightsAt

MEMORY_REQUESTS = 64  # the newest of so many requests count most: tokens over seconds, so long ones count as they last
PRIOR_TOKENS_PER_S = 20.0  # of one request among others, assumed where none of its model has finished at a node
MAX_PACES = 1024  # (model, node) that are remembered; the one that was heard of longest ago is forgotten first


class Drawing(Protocol):
    """A request that runs; see `services.queue_manager.state.request.Request`."""

    model: str
    node: str
    begins_s: float
    done_tokens: int
    max_tokens: int


class TokenRate(msgspec.Struct, array_like=True):
    """Fading sums over the requests that finished."""

    tokens: float = 0.0
    seconds: float = 0.0


class TokenRates:
    """Output tokens a second of one running request, interruptions included. Owns `State.paces`."""

    def __init__(self, paces: dict[WeightsAt, TokenRate]) -> None:
        self._paces = paces

    def observe(self, model: str, node: str, output_tokens: int, seconds: float) -> None:
        """A request has finished ``seconds`` after it was expected to begin, with so many tokens since then."""
        if seconds <= 0:
            return  # it began later than it was expected to, or at one time of the log: that says nothing of the pace
        key = WeightsAt(model, node)
        pace = self._paces.pop(key, None) or TokenRate()  # and to the end: the first is the one to forget
        kept = 1 - 1 / MEMORY_REQUESTS
        self._paces[key] = TokenRate(kept * pace.tokens + output_tokens, kept * pace.seconds + seconds)
        if len(self._paces) > MAX_PACES:
            del self._paces[next(iter(self._paces))]

    def tokens_per_s(self, model: str, node: str) -> float:
        """Expected pace of one request of this model at this node."""
        learnt = self.learnt(model, node)
        return PRIOR_TOKENS_PER_S if learnt is None else learnt

    def learnt(self, model: str, node: str) -> float | None:
        """The same; None where none has finished."""
        pace = self._paces.get(WeightsAt(model, node))
        return pace.tokens / pace.seconds if pace is not None else None

    def drawn_tokens(self, request: Drawing, now: float) -> float:
        """What a request that runs has drawn by now, with all its attempts."""
        drawn = (now - request.begins_s) * self.tokens_per_s(request.model, request.node)
        return min(float(request.max_tokens), request.done_tokens + max(0.0, drawn))

"""Requests whose prompt another node has cached: whether its KV is fetched before they begin, and what they begin with.

The engine says first what it has by now, since the queue manager knew that when the request came, and a request may be
pulled by another node than it was meant for. Whatever goes wrong, the request begins and is computed.
"""

from __future__ import annotations

from collections.abc import Container

from gpu_node.agent.decisions.actions import FetchPrefix, SeekPrefix, Tell
from gpu_node.agent.decisions.models.models import NodeModels
from gpu_node.engine.process.protocol.prefix_protocol import FindPrefix, PrefixFound
from gpu_node.engine.process.protocol.protocol import RunAttempt
from shared.messages.prefixes.prefix_sources import PrefixSource
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Attempt

MIN_TOKENS = 64
"""That a source must have more than this node: fewer are computed while it is asked."""

MAX_SOUGHT = 8
"""Requests at a time; one beyond these is computed at once."""


class SoughtPrefixes:
    """Owns the requests that a prefix is sought for: from when the engine is asked until they begin or are given up."""

    def __init__(self, node: str, models: NodeModels, *, is_on: bool) -> None:
        self._node = node
        self._models = models
        self._is_on = is_on
        self._sought: dict[Attempt, SeekPrefix] = {}
        self._unanswered: set[Attempt] = set()
        """Those of them that the engine has been asked about."""

    @property
    def awaits_engine(self) -> bool:
        """Whether it owes an answer."""
        return bool(self._unanswered)

    @property
    def attempts(self) -> list[Attempt]:
        """Those that a prefix is sought for."""
        return list(self._sought)

    def check(self, fetching: Container[Attempt]) -> None:
        """Assert that the books balance: ``fetching`` are all that have been pulled and not begun."""
        assert len(self._sought) <= MAX_SOUGHT, f"{len(self._sought)} are sought for"
        assert self._unanswered <= self._sought.keys(), "the engine is asked about one that is not sought for"
        for attempt in self._sought:
            assert attempt in fetching, f"{attempt} is sought for and has begun"

    def wants(self, payload: Payload, source: PrefixSource) -> bool:
        """Whether it is worth to look, for a request that has been pulled."""
        loaded = self._models.loaded
        return (
            self._is_on
            and source.node != self._node
            and loaded is not None
            and loaded.model == payload.model
            and loaded.kv_format == source.kv_format != ""
            and not payload.pictures
            and len(self._sought) < MAX_SOUGHT
        )

    def seek(self, start: SeekPrefix) -> Tell:
        """Its turn has come: what does the engine have?"""
        payload = start.payload
        attempt = Attempt(payload.request_id, payload.attempt)
        self._sought[attempt] = start
        self._unanswered.add(attempt)
        tokens = payload.prompt_token_ids
        return Tell(FindPrefix(payload.request_id, payload.attempt, payload.model, payload.owner, tokens))

    def found(self, event: PrefixFound) -> FetchPrefix | Tell | None:
        """The engine has looked: fetch, or begin; None for a request that was given up meanwhile.

        An attempt that was given up, and has come again, is answered twice: the first answer counts.
        """
        attempt = Attempt(event.request_id, event.attempt)
        if attempt not in self._unanswered:
            return None
        start = self._sought[attempt]
        self._unanswered.discard(attempt)
        if start.source.num_tokens - event.num_tokens < MIN_TOKENS:
            return Tell(RunAttempt(start.payload))
        return FetchPrefix(start.payload, start.source, event.device_tokens)

    def forget(self, attempt: Attempt) -> None:
        """It begins, or was given up; one that is not sought for is ignored."""
        self._sought.pop(attempt, None)
        self._unanswered.discard(attempt)

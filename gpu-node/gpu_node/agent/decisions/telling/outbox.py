"""What one event brings for the gateways and the queue manager, gathered into one transaction."""

from __future__ import annotations

from gpu_node.agent.decisions.actions import Ack, AgentAction, Publish
from shared.messages.requests.requests import Chunk, EvictedRequest, FinishedRequest, Tokens


class Outbox:
    """Collects chunks by gateway; an entry that is done with leaves its acknowledgement and its end as well."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._chunks: dict[str, list[Chunk]] = {}
        self._acks: list[Ack] = []
        self._finished: list[FinishedRequest] = []
        self._evicted: list[EvictedRequest] = []

    def add(self, gateway: str, chunk: Chunk) -> None:
        """New tokens of an attempt, or the end of one of its choices."""
        self._chunks.setdefault(gateway, []).append(chunk)

    def finish(self, last: Chunk, output_tokens: int, ack: Ack) -> None:
        """An attempt is over with its ``last`` chunk, after so many tokens of all its choices."""
        self._acks.append(ack)
        self._finished.append(FinishedRequest(last.request_id, last.attempt, last.finish_reason, output_tokens))

    def ack(self, ack: Ack) -> None:
        """An entry that is not awaited."""
        self._acks.append(ack)

    def evict(self, request: EvictedRequest, ack: Ack | None) -> None:
        """An attempt was taken out; it has no entry to acknowledge where it waited already."""
        self._evicted.append(request)
        if ack is not None:
            self._acks.append(ack)

    def publish(self) -> list[AgentAction]:
        """One action for all of it, or none."""
        if not self._chunks and not self._evicted and not self._acks:
            return []
        tokens = {gateway: Tokens(node=self._node, chunks=chunks) for gateway, chunks in self._chunks.items()}
        return [Publish(tokens, self._acks, self._finished, self._evicted)]

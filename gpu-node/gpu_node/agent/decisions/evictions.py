"""Requests that give way (QLM, SoCC'24 §5): which leave the engine first, and what becomes of those that left.

An eviction asks the engine; its answer names those that had not ended meanwhile. Their KV stays in host memory, or goes
to another node: then the engine is asked for an image of each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from gpu_node.agent.decisions.actions import AgentAction, DropImages, ImageHeld, Tell
from gpu_node.agent.decisions.ledger import EvictedAttempt, KvDestination, Ledger
from gpu_node.agent.decisions.telling.outbox import Outbox
from gpu_node.engine.process.protocol import protocol
from shared.messages.requests.requests import HANDED_OVER, Attempt

KV_IMAGE_TTL_S = 120.0
"""Migration takes seconds; an image that has not been fetched by then has lost its request, and is large."""

MAX_AHEAD = 8
"""Images that a node reads while they grow elsewhere, at a time; others are fetched when they are whole."""

IMAGE_LINGER_S = 10.0
"""A node that was asked to stop and has handed over waits so long for the nodes that fetch the KV."""


class EngineEvictions:
    """The conversation with the engine about leaving. Moves attempts of the ledger from place to place."""

    def __init__(self, node: str, ledger: Ledger) -> None:
        self._node = node
        self._ledger = ledger
        self._asked: deque[dict[str, int]] = deque()
        """Of each `Evict` that is unanswered, in order: the attempt by request. Bounded by the node's inbox."""

    @property
    def is_under_way(self) -> bool:
        """The engine has not answered yet: which requests have left, and what room that makes, is not known."""
        return bool(self._asked)

    def leaving(self, yielding: list[str], num_requests: int) -> list[str]:
        """Up to so many requests of these groups, in the order in which they give way.

        The last group goes first, and of a group the request that was pulled last: it has the least to lose.
        """
        rank = {group: place for place, group in enumerate(yielding)}
        newest_first = [
            (request_id, rank[running.ack.group])
            for request_id, running in reversed(self._ledger.running.items())
            if running.ack.group in rank and not running.is_fetching
        ]
        last_group_first = sorted(newest_first, key=lambda item: -item[1])
        return [request_id for request_id, _ in last_group_first[:num_requests]]

    def evict(self, request_ids: list[str]) -> list[AgentAction]:
        """Take these out of the engine."""
        if not request_ids:
            return []
        self._asked.append({request_id: self._ledger.running[request_id].attempt for request_id in request_ids})
        return [Tell(protocol.TakeOut(request_ids))]

    def hand_over(self, attempts: list[Attempt], destination: KvDestination, outbox: Outbox) -> list[AgentAction]:
        """Give these to another node. What is unknown here has ended, or was never here."""
        running, moving, dropped = [], [], []
        for attempt in attempts:
            request_id = attempt.request_id
            run = self._ledger.find(request_id, attempt.attempt)
            kept = self._ledger.parked.get(request_id)
            if run is not None:
                run.kv_destination = destination
                if not any(request_id in asked for asked in self._asked):
                    running.append(request_id)
            elif kept is not None and kept.attempt == attempt.attempt:
                del self._ledger.parked[request_id]
                if destination is KvDestination.MOVES:
                    self._ledger.moving[request_id] = kept
                    moving.append(request_id)
                else:
                    outbox.evict(kept.told(request_id, 0, self._node), None)
                    dropped.append(request_id)
        return [*self.evict(running), *_export(moving), *_forget(dropped)]

    def on_evicted(self, event: protocol.TakenOut, outbox: Outbox) -> list[AgentAction]:
        """The engine has taken requests out: tell the queue manager, or ask for the images of those that move."""
        asked = self._asked.popleft()
        moving, dropped = [], []
        for kept in event.requests:
            running = self._ledger.find(kept.request_id, asked[kept.request_id])
            if running is None:
                continue  # given up meanwhile, or replaced by a newer attempt; the engine has been told
            del self._ledger.running[kept.request_id]
            evicted = EvictedAttempt(running.attempt, running.num_tokens, kept.kv_tokens)
            if not kept.kv_tokens or running.kv_destination is KvDestination.DROPPED:
                outbox.evict(evicted.told(kept.request_id, 0, self._node), running.ack)
                dropped += [kept.request_id] if kept.kv_tokens else []
            elif running.kv_destination is KvDestination.MOVES:
                self._ledger.moving[kept.request_id] = replace(evicted, ack=running.ack)
                moving.append(kept.request_id)
            else:
                outbox.evict(evicted.told(kept.request_id, kept.kv_tokens, self._node), running.ack)
                self._ledger.parked[kept.request_id] = evicted
        return [*_export(moving), *_forget(dropped)]

    def on_image(self, event: ImageHeld, outbox: Outbox) -> list[AgentAction]:
        """A request is ready to go on elsewhere."""
        request_id = event.attempt.request_id
        moving = self._ledger.moving.get(request_id)
        if moving is None or moving.attempt != event.attempt.attempt:
            return [DropImages([event.attempt])]  # given up while the engine wrote it
        del self._ledger.moving[request_id]
        if event.ticket is None:
            outbox.evict(moving.told(request_id, 0, self._node), moving.ack)
        else:
            outbox.evict(moving.told(request_id, moving.kv_tokens, HANDED_OVER, event.ticket), moving.ack)
        return []


def _forget(request_ids: list[str]) -> list[AgentAction]:
    return [Tell(protocol.AbortRequests(request_ids))] if request_ids else []


def _export(request_ids: list[str]) -> list[AgentAction]:
    return [Tell(protocol.HandOverImages(request_ids))] if request_ids else []

"""Beginnings of prompts at a simulated node: what others ask of its cache, and what it reads in theirs.

As live (`gpu_node.agent.images.prefix_giver`, `prefix_asker`), by the same bounds; what comes shares the node's network
with images of requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from gpu_node.agent.decisions.actions import FetchPrefix, PrefixFetched, StopFetch
from gpu_node.agent.decisions.given_prefixes import COPY_S, HOLD_S, MAX_ASKS
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied, PrefixTaken
from gpu_node.engine.process.protocol.protocol import (
    NO_IMAGE,
    EngineEvent,
    Image,
    ImageFile,
    ModelLoaded,
    ReleaseImages,
)
from gpu_node.engine.requests.image import BlockFormat
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node_images import LATENCY_S, NodeHooks, NodeImages
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests.requests import Attempt, ImageTicket

TicketHeard = Callable[[ImageTicket | None], None]


@dataclass(slots=True)
class PrefixCounts:
    """Of one node over all its epochs, as a taker."""

    num_fetched: int = 0
    num_failed: int = 0
    """Fetches of which nothing came: those prompts were computed."""
    num_bytes: int = 0
    num_tokens: int = 0
    """That were new in its cache."""


class NodePrefixes:
    """Of one epoch."""

    def __init__(
        self, door: KvDoor, bus: MemoryBus, images: NodeImages, hooks: NodeHooks, counts: PrefixCounts
    ) -> None:
        self._bus = bus
        self._door = door
        self._images = images
        self._hooks = hooks
        self._counts = counts
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[PrefixAsk, TicketHeard]] = {}
        self._fetching: dict[Attempt, FetchPrefix] = {}
        bus.doors[door.url] = self

    def close(self) -> None:
        """The epoch is over."""
        if self._bus.doors.get(self._door.url) is self:
            del self._bus.doors[self._door.url]
        self._asked.clear()
        self._fetching.clear()

    # --- the engine -----------------------------------------------------------------------------------------------

    def named(self, event: EngineEvent, model: LoadedModel) -> EngineEvent:
        """A `ModelLoaded` that says how blocks are cut: here they have no content, and travel as if they had."""
        assert isinstance(event, ModelLoaded), "it has just been told"
        return structs.replace(event, kv_format=BlockFormat.of(model).cut)

    def hear(self, event: PrefixCopied | PrefixTaken) -> None:
        """It has copied something for another node, or has in its cache what has come."""
        if isinstance(event, PrefixCopied):
            self._copied(event)
        else:
            self._counts.num_tokens += event.num_tokens

    # --- to other nodes -------------------------------------------------------------------------------------------

    def ask(self, ask: PrefixAsk, token: str, told: TicketHeard) -> None:
        """As `PrefixDoor.ask`."""
        if token != self._door.token or len(self._asked) >= MAX_ASKS:
            return told(None)
        number = next(self._numbers)
        self._asked[number] = ask, told
        self._hooks.tell(CopyPrefix(number, ask))
        self._hooks.at(self._bus.now + COPY_S, lambda: self._answer(number, None))
        return None

    def _copied(self, event: PrefixCopied) -> None:
        """What no request waits for any more is dropped."""
        if event.file == NO_IMAGE:
            self._answer(event.number, None)
        elif event.number not in self._asked:
            self._hooks.tell(ReleaseImages([event.image]))
        else:
            ask, _ = self._asked[event.number]
            held = self._images.hold(Image(ask.request_id, ask.attempt, event.image, event.file), HOLD_S)
            self._answer(event.number, held.ticket)

    def _answer(self, number: int, ticket: ImageTicket | None) -> None:
        if number in self._asked:
            _, told = self._asked.pop(number)
            told(ticket)

    # --- from other nodes -----------------------------------------------------------------------------------------

    def do(self, action: FetchPrefix | StopFetch) -> None:
        """As the agent's core wants it."""
        if isinstance(action, FetchPrefix):
            return self._fetch(action)
        for attempt in action.attempts:
            self._fetching.pop(attempt, None)
        return None

    def _fetch(self, wanted: FetchPrefix) -> None:
        """Ask its source, and fetch the copy; for as long as that is worth it."""
        self._fetching[_attempt(wanted)] = wanted
        self._hooks.at(self._bus.now + LATENCY_S, lambda: self._ask(wanted))
        self._hooks.at(self._bus.now + wanted.source.within_s, lambda: self._end(wanted, NO_IMAGE, 0.0))

    def _ask(self, wanted: FetchPrefix) -> None:
        payload, source = wanted.payload, wanted.source
        ask = PrefixAsk(
            request_id=payload.request_id,
            attempt=payload.attempt,
            model=payload.model,
            adapter=payload.adapter,
            kv_format=source.kv_format,
            token_ids=payload.prompt_token_ids,
            from_token=wanted.from_token,
            partition=payload.partition,
        )
        door = self._bus.doors.get(source.door.url)
        if door is None:
            self._end(wanted, NO_IMAGE, 0.0)
        else:
            door.ask(ask, source.door.token, lambda ticket: self._told(wanted, ticket))

    def _told(self, wanted: FetchPrefix, ticket: ImageTicket | None) -> None:
        if not self._is_wanted(wanted):
            return None
        if ticket is None:
            return self._end(wanted, NO_IMAGE, 0.0)
        due_s, took_s = self._images.arrival(ticket.num_bytes)
        return self._hooks.at(due_s, lambda: self._arrived(wanted, ticket, took_s))

    def _arrived(self, wanted: FetchPrefix, ticket: ImageTicket, took_s: float) -> None:
        if self._is_wanted(wanted):
            data = self._bus.take_image(ticket.url)
            self._end(wanted, self._images.put(ticket, data) if data else NO_IMAGE, took_s)

    def _is_wanted(self, wanted: FetchPrefix) -> bool:
        return self._fetching.get(_attempt(wanted)) is wanted

    def _end(self, wanted: FetchPrefix, file: ImageFile, took_s: float) -> None:
        if not self._is_wanted(wanted):
            return
        del self._fetching[_attempt(wanted)]
        self._counts.num_fetched += file != NO_IMAGE
        self._counts.num_failed += file == NO_IMAGE
        self._counts.num_bytes += file.num_bytes
        self._hooks.feed(PrefixFetched(wanted.payload, file, took_s))


def _attempt(wanted: FetchPrefix) -> Attempt:
    return Attempt(wanted.payload.request_id, wanted.payload.attempt)

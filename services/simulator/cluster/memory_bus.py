"""Redis's part in memory and in virtual time: streams that deliver in order, group streams, payloads, one clock."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Protocol

from gpu_node.agent.decisions.evictions import KV_IMAGE_TTL_S
from shared.bus import streams
from shared.messages.message import Message
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Attempt, Enqueued, ImageTicket, Pulled

Subscriber = Callable[[Message, float], None]
Listener = Callable[[float, str, Message], None]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """One that waits for the node that pulls the request."""

    epoch: str
    """Of the node that gave it."""
    attempt: Attempt
    data: bytes
    release: Callable[[], None]
    """The node that gave it hears that it is gone."""


@dataclass(slots=True)
class GrowingImage:
    """One that others read before it is whole, and after."""

    epoch: str
    attempt: Attempt
    release: Callable[[], None]
    num_bytes: int = 0
    """That can be read."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Who is to hear of more, or of its end."""

    def tell(self) -> None:
        """They look again."""
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told()


class PrefixDoor(Protocol):
    """Where others ask an epoch of a node."""

    def ask(self, ask: PrefixAsk, token: str, told: Callable[[ImageTicket | None], None]) -> None:
        """Have ``told`` hear of a copy of what is cached of a text, or that nothing is given; at once, or later."""
        ...


class MemoryBus:
    """A heap of (time, sequence number, action): the only clock, and the only order, of a simulated cluster."""

    def __init__(self, latency_s: float = 0.001) -> None:
        self.now = 0.0
        self.payloads: dict[str, Payload] = {}
        self.images: dict[str, StoredImage] = {}
        """Requests that were handed over, by the address of their image, as long as the node that gave it has it."""
        self.growing: dict[str, GrowingImage] = {}
        """Of these, and of requests whose prompts are computed still, what is read ahead."""
        self.doors: dict[str, PrefixDoor] = {}
        """Of nodes that let others read what they have cached, by their addresses."""
        self._latency_s = latency_s
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._num_scheduled = 0
        self._handlers: dict[str, Subscriber] = {}
        self._groups: dict[str, deque[Enqueued]] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Be told of every message as it is sent."""
        self._listeners.append(listener)

    def subscribe(self, stream: str, handler: Subscriber) -> None:
        """Deliver what is sent to ``stream`` from now on."""
        self._handlers[stream] = handler

    def unsubscribe(self, stream: str) -> None:
        """The reader is gone; what is sent to the stream is lost, as for a node that starts a new epoch."""
        self._handlers.pop(stream, None)

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` at a time; actions of one time run in the order in which they were asked for."""
        heapq.heappush(self._heap, (max(time_s, self.now), self._num_scheduled, action))
        self._num_scheduled += 1

    def send(self, stream: str, message: Message) -> None:
        """Append to a stream; its reader has it one latency later. Group streams are pulled from instead."""
        for listener in self._listeners:
            listener(self.now, stream, message)
        if isinstance(message, Enqueued):
            self._groups.setdefault(stream, deque()).append(message)
        else:
            self.at(self.now + self._latency_s, lambda: self._deliver(stream, message))

    def drop(self, key: str) -> None:
        """Delete a stream or a payload."""
        self._groups.pop(key, None)
        self._handlers.pop(key, None)
        self.payloads.pop(key.removeprefix(streams.payload("")), None)

    def pull(self, group: str, num_requests: int, node: str, epoch: str) -> list[tuple[Enqueued, Payload | None]]:
        """Take entries of a group and tell the queue manager, in one step (see `shared.bus.scripts.PULL`)."""
        waiting = self._groups.get(streams.group(group), deque())
        taken = [waiting.popleft() for _ in range(min(num_requests, len(waiting)))]
        if taken:
            requests = [Attempt(entry.request_id, entry.attempt) for entry in taken]
            self.send(streams.QUEUE, Pulled(node=node, epoch=epoch, group=group, requests=requests))
        return [(entry, self.payloads.get(entry.request_id)) for entry in taken]

    def put_image(self, address: str, image: StoredImage, hold_s: float = KV_IMAGE_TTL_S) -> None:
        """Hold the image of a request for the node that will pull it; or, for less long, what another one asks for."""
        self.images[address] = image
        self.at(self.now + hold_s, lambda: self._expire(address, image))

    def _expire(self, address: str, image: StoredImage) -> None:
        if self.images.get(address) is image:
            self.take_image(address)

    def take_image(self, address: str) -> bytes:
        """An image, which is gone with that; empty if there is none."""
        image = self.images.pop(address, None)
        self.end_growth(address)
        if image is None:
            return b""
        image.release()
        return image.data

    def end_growth(self, address: str) -> GrowingImage | None:
        """Nothing more is read of an image; which it was, or None."""
        growing = self.growing.pop(address, None)
        if growing is not None:
            growing.tell()
        return growing

    def drop_images(self, epoch: str, attempts: Container[Attempt]) -> None:
        """No node will come for these that an epoch of a node holds."""
        held = [(address, image) for address, image in self.images.items() if image.epoch == epoch]
        for address, image in held:
            if image.attempt in attempts:
                self.take_image(address)
        for address, growing in list(self.growing.items()):
            if growing.epoch == epoch and growing.attempt in attempts:
                self.end_growth(address)
                growing.release()

    def lose_images(self, epoch: str) -> None:
        """It is over, with what it held."""
        for address in [address for address, image in self.images.items() if image.epoch == epoch]:
            del self.images[address]
        for address in [address for address, one in self.growing.items() if one.epoch == epoch]:
            self.end_growth(address)

    def group_streams(self) -> list[str]:
        """Group streams that exist."""
        return list(self._groups)

    def step(self) -> bool:
        """Run the next action; False when there is none."""
        if not self._heap:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        action()
        return True

    def run_until(self, time_s: float) -> None:
        """Run everything that is due up to a time, and move the clock there."""
        while self._heap and self._heap[0][0] <= time_s:
            self.step()
        self.now = max(self.now, time_s)

    def _deliver(self, stream: str, message: Message) -> None:
        handler = self._handlers.get(stream)
        if handler is not None:
            handler(message, self.now)

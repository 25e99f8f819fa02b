"""Evicted requests of the fast engine, as lengths: what `gpu_node.engine.evictions.parking_lot` is to the live one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.image import HandedOver, ImageError, SerialisedImage
from shared.messages.requests.payload import Payload


class Parked(msgspec.Struct, frozen=True):
    """A request that was taken out, and the size of its KV."""

    request_id: str
    attempt: int
    model: str
    num_known_tokens: int
    num_computed_tokens: int
    num_blocks: int
    block_bytes: int

    @property
    def num_bytes(self) -> int:
        """Of its blocks."""
        return self.num_blocks * self.block_bytes

    def fits(self, payload: Payload, model: LoadedModel) -> bool:
        """Whether this attempt can go on from it with the model as it is cut here."""
        mine = (self.request_id, self.attempt, self.model, self.block_bytes)
        return mine == (payload.request_id, payload.attempt, model.name, model.block_bytes)

    def encode(self) -> bytes:
        """Serialised, for another engine."""
        return msgspec.msgpack.encode(self)


class FastParking:
    """Bounded by bytes; without room for a newcomer, the newcomer is not kept."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self.num_bytes = 0
        """Of all that is kept, given away and not released, or lent."""
        self._parked: dict[str, Parked] = {}
        self._given: dict[int, int] = {}
        self._num_given = 0
        self._begun: dict[str, int] = {}
        self._ended: list[int] = []

    def get(self, request_id: str) -> Parked | None:
        """What is kept of a request."""
        return self._parked.get(request_id)

    def keep(self, parked: Parked, number: int = 0, yields: Callable[[], bool] = lambda: False) -> Parked | None:
        """Keep a request; None where there is no room, or nothing computed that would be worth it.

        ``number``: as which its image has begun, whose room that was. ``yields``: another one gives up its room.
        """
        self.release(number)
        while self.num_bytes + parked.num_bytes > self._capacity_bytes and yields():
            pass
        if not parked.num_computed_tokens or self.num_bytes + parked.num_bytes > self._capacity_bytes:
            self._ended += [number] if number else []
            return None
        if number:
            self._begun[parked.request_id] = number
        self._parked[parked.request_id] = parked
        self.num_bytes += parked.num_bytes
        return parked

    def resume(self, payload: Payload, model: LoadedModel, image: SerialisedImage | None) -> Parked | None:
        """What an attempt goes on from: what is kept here, else what ``image`` brings; None: its payload.

        `ImageError` for an image that cannot be used.
        """
        parked = self._parked.get(payload.request_id)
        if parked is not None and parked.fits(payload, model):
            return parked
        self.drop(payload.request_id)
        if image is None:
            return None
        brought = msgspec.msgpack.decode(image, type=Parked) if image else None
        if brought is None or not brought.fits(payload, model):
            raise ImageError("it is gone, or another attempt's")
        kept = self.keep(brought)
        if kept is None:
            raise ImageError("there is no room for it")
        return kept

    def drop(self, request_id: str) -> Parked | None:
        """Forget a request; what was kept of it."""
        parked = self._parked.pop(request_id, None)
        if parked is not None:
            self.num_bytes -= parked.num_bytes
            if request_id in self._begun:
                self._ended.append(self._begun.pop(request_id))
        return parked

    def give(self, request_id: str) -> HandedOver | None:
        """What another engine goes on with; its bytes count until `release`."""
        parked = self._parked.pop(request_id, None)
        if parked is None:
            return None
        number = self._begun.pop(request_id, 0)
        if not number:
            self._num_given += 1
            number = self._num_given
        self._given[number] = parked.num_bytes
        return HandedOver(request_id, parked.attempt, number, (parked.encode(),), parked.num_bytes)

    def lend(self, num_bytes: int) -> int | None:
        """Room for an image that grows, under a number until `release`; None without room."""
        if self.num_bytes + num_bytes > self._capacity_bytes:
            return None
        self._num_given += 1
        self._given[self._num_given] = num_bytes
        self.num_bytes += num_bytes
        return self._num_given

    def end(self, number: int) -> None:
        """Nothing more comes of an image that has begun."""
        self.release(number)
        self._ended.append(number)

    def take_ended(self) -> list[int]:
        """Numbers of those, since it was asked last."""
        ended, self._ended = self._ended, []
        return ended

    def release(self, number: int) -> None:
        """It is there, or its time is over; unknown ones are ignored."""
        self.num_bytes -= self._given.pop(number, 0)

    def clear(self) -> None:
        """Forget all that was not given away."""
        self._parked.clear()
        self._ended += self._begun.values()
        self._begun.clear()
        self.num_bytes = sum(self._given.values())

    def check(self) -> None:
        """Assert that the bytes are counted and bounded."""
        num_kept = sum(parked.num_bytes for parked in self._parked.values())
        assert self.num_bytes == num_kept + sum(self._given.values()) <= self._capacity_bytes

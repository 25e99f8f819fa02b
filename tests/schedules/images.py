"""Images of requests between nodes, which meet no Redis: who holds what, and what becomes of it when one dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_node.agent.decisions.evictions import IMAGE_LINGER_S, KV_IMAGE_TTL_S
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image, ImageFile
from shared.messages.requests.requests import Attempt, ImageTicket
from tests.schedules.agenda import Host, sleep

TRANSFER_S = 0.2  # the longest
STALL_S = 5.0  # of a giver that stands still, until whoever fetches gives up


@dataclass(slots=True)
class _Given:
    holder: Host
    epoch: str
    attempt: Attempt
    file: ImageFile
    until_s: float


@dataclass(slots=True)
class Images:
    """Of all nodes, by their addresses."""

    _given: dict[str, _Given] = field(default_factory=dict)
    num_held: int = 0
    """That were ever handed over."""
    growing: dict[str, str] = field(default_factory=dict)
    """Epochs by the addresses of images that are read and not whole."""
    num_ahead: int = 0
    """That somebody was told to read while they grew, and did."""

    def __len__(self) -> int:
        return len(self._given)

    def hold(self, holder: Host, node: str, epoch: str, image: Image) -> ImageTicket:
        """A node's engine has handed a request over."""
        attempt, address = Attempt(image.request_id, image.attempt), f"{epoch}/{image.number}"
        self.growing.pop(address, None)
        until_s = holder.agenda.now + KV_IMAGE_TTL_S
        self.num_held += 1
        self._given[address] = _Given(holder, epoch, attempt, image.file, until_s)
        return ImageTicket(node, address, "secret", image.file.num_bytes)

    def grow(self, node: str, epoch: str, number: int, num_bytes: int) -> ImageTicket | None:
        """A node's engine has a part of one; the ticket, the first time."""
        address = f"{epoch}/{number}"
        is_new = address not in self.growing
        self.growing[address] = epoch
        return ImageTicket(node, address, "secret", num_bytes) if is_new else None

    def end_growth(self, epoch: str, number: int) -> None:
        """It is not going to be whole."""
        self.growing.pop(f"{epoch}/{number}", None)

    def read_ahead(self, ticket: ImageTicket) -> None:
        """What is read is used by whoever fetches it then: as a fetch is one act here, that changes nothing."""
        self.num_ahead += ticket.url in self.growing

    def drop(self, epoch: str, attempts: list[Attempt]) -> None:
        """Nobody will come for these."""
        self._remove(lambda one: one.epoch == epoch and one.attempt in attempts)

    def end(self, epoch: str, now: float | None = None) -> None:
        """An epoch is over, with all that it held; at ``now`` it has been drained, and they wait a little."""
        for given in self._given.values():
            if given.epoch == epoch and now is not None:
                given.until_s = now + IMAGE_LINGER_S
        if now is None:
            self._remove(lambda one: one.epoch == epoch)
        self.growing = {address: whose for address, whose in self.growing.items() if whose != epoch}

    def expire(self, now: float) -> None:
        """What is over."""
        self._remove(lambda one: one.until_s <= now)

    def _remove(self, is_meant: Callable[[_Given], bool]) -> None:
        self._given = {address: one for address, one in self._given.items() if not is_meant(one)}

    async def fetch(self, taker: Host, ticket: ImageTicket | None, share: float) -> ImageFile:
        """What a taker gets, for all that may happen to both meanwhile; it is gone with that."""
        self.expire(taker.agenda.now)
        given = self._given.get(ticket.url) if ticket is not None else None
        if given is None or ticket is None:
            return NO_IMAGE
        await sleep(TRANSFER_S * share)
        stands_s = given.holder.frozen_until_s - taker.agenda.now
        if stands_s > 0:
            await sleep(min(stands_s, STALL_S))
        whole = self._given.get(ticket.url) is given and stands_s < STALL_S
        if not whole:
            return NO_IMAGE
        del self._given[ticket.url]
        return given.file

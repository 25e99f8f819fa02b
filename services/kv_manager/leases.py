"""Which node lends pages of KV memory to which: a lease for each node that borrows, from one node of its host.

A fold over what nodes tell. Nothing is lent that a receiver does not call spare, nothing is granted twice, and whatever
either side becomes, its pages come back: on the receiver's need they are called back, never dropped; where a side is
gone or silent, the link ends, at the latest when the lease does, since each side ends by itself what is not renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from services.kv_manager import lease_needs as needs
from shared.bus import streams
from shared.messages.memory.leases import (
    LEASE_S,
    EndLease,
    GrantLent,
    LeaseAnswer,
    LeaseFailed,
    LeaseLink,
    LeaseMade,
    LeaseMessage,
    LeftPages,
    LendTo,
    Lent,
    MakeLease,
    RenewLease,
    TakeBack,
    WantBack,
)
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.nodes.nodes import Heartbeat
from shared.service.core import Effect, Send

RENEW_S = LEASE_S / 3
ANSWER_S = LEASE_S
"""A node that has not done what it was told by then has no lease."""
RETRY_S = 60.0
"""After a refusal, until a node is asked again."""
MAX_PAGES_ASKED = 64
"""At a time; more follow with later heartbeats."""


class LeaseStage(StrEnum):
    """How far a lease is."""

    MAKING = "making"
    """The sender makes its link."""
    LENDING = "lending"
    """The receiver is asked for pages."""
    HELD = "held"


class PageLease(msgspec.Struct):
    """What one node has of another one."""

    link: LeaseLink
    model: str
    stage: LeaseStage = LeaseStage.MAKING
    sizes: LinkSizes | None = None
    """As the sender's engine told."""
    pages: list[int] = []
    """Granted, those that are wanted back included."""
    num_asked: int = 0
    """Of the receiver, not answered yet."""
    num_wanted_back: int = 0
    answer_by_s: float = 0.0
    """When what was asked for shall be there; 0.0 where nothing was."""
    renew_s: float = 0.0
    """When a held lease is renewed next."""

    @property
    def due_s(self) -> float:
        """When something is to be done about it, if no message comes."""
        times = [one for one in (self.answer_by_s, self.renew_s) if one]
        return min(times)


class LeaseState(msgspec.Struct):
    """Part of the KV manager's state."""

    leases: dict[str, PageLease] = {}
    """By sender."""
    beats: dict[str, Heartbeat] = {}
    """The last of each node that may lend or borrow."""
    retry_s: dict[str, float] = {}
    """By sender: not before then."""


class LeaseBook:
    """Decides by the last heartbeats."""

    def __init__(self, hosts: Callable[[str], Iterable[str]], ratio: needs.Ratio, state: LeaseState) -> None:
        """``hosts``: the other nodes of a node's host that may lend to it."""
        self._hosts, self._ratio = hosts, ratio
        self.state = state

    @property
    def wake_at(self) -> float | None:
        """When a lease is to be renewed, or what was asked for should be there."""
        return min((lease.due_s for lease in self.state.leases.values()), default=None)

    @property
    def leases(self) -> Mapping[str, PageLease]:
        """By sender."""
        return self.state.leases

    # --- what is heard ----------------------------------------------------------------------------------------------

    def report(self, beat: Heartbeat, now: float) -> list[Effect]:
        """A node says how it is."""
        if not any(True for _ in self._hosts(beat.node)):
            return []
        self.state.beats[beat.node] = beat = self._with_lent(beat)
        effects = [
            effect
            for lease in list(self.state.leases.values())
            if not self._still_holds(lease, beat)
            for effect in self._end(lease)
        ]
        return [*effects, *self._call_back(beat), *self._borrow(beat, now), *self._give_back(beat)]

    def forget(self, node: str) -> list[Effect]:
        """It is gone, or silent."""
        self.state.beats.pop(node, None)
        gone = [one for one in self.state.leases.values() if node in (one.link.sender, one.link.receiver)]
        return [effect for lease in gone for effect in self._end(lease)]

    def hear(self, answer: LeaseAnswer, now: float) -> list[Effect]:
        """A node has done what it was told, or not. What belongs to no lease ends there."""
        lease = self.state.leases.get(answer.link.sender)
        if lease is None or lease.link != answer.link:
            return [] if isinstance(answer, LeaseFailed) else [_send(EndLease, answer.link, answer.node)]
        match answer:
            case LeaseFailed():
                self.state.retry_s[lease.link.sender] = now + RETRY_S
                return self._end(lease, told=answer.node)
            case LeaseMade():
                return self._made(lease, answer, now)
            case Lent():
                return self._lent(lease, answer, now)
            case LeftPages():
                return self._left(lease, answer)

    def tick(self, now: float) -> list[Effect]:
        """Renew what holds; end what was not answered in time."""
        effects: list[Effect] = []
        for lease in list(self.state.leases.values()):
            if lease.answer_by_s and now >= lease.answer_by_s:
                self.state.retry_s[lease.link.sender] = now + RETRY_S
                effects += self._end(lease)
            elif lease.renew_s and now >= lease.renew_s:
                effects += self._renew(lease, now)
        return effects

    # --- a lease's way ----------------------------------------------------------------------------------------------

    def _borrow(self, beat: Heartbeat, now: float) -> list[Effect]:
        """As a sender: a lease, or more pages, if it wants any and a node of its host has them."""
        lease = self.state.leases.get(beat.node)
        if not beat.model or now < self.state.retry_s.get(beat.node, 0.0):
            return []
        if lease is None:
            lender = self._lender(beat)
            if lender is None or needs.num_wanted(self._ratio, beat, lender, 0) <= 0:
                return []
            link = LeaseLink(beat.node, beat.epoch, lender.node, lender.epoch)
            self.state.leases[beat.node] = PageLease(link, beat.model, answer_by_s=now + ANSWER_S)
            return [_send(MakeLease, link, beat.node, model=beat.model)]
        receiver = self.state.beats.get(lease.link.receiver)
        if lease.stage is not LeaseStage.HELD or lease.num_asked or lease.num_wanted_back or receiver is None:
            return []
        return self._ask(lease, beat, receiver, now)

    def _made(self, lease: PageLease, answer: LeaseMade, now: float) -> list[Effect]:
        if lease.stage is not LeaseStage.MAKING:
            return []
        lease.stage, lease.sizes = LeaseStage.LENDING, answer.sizes
        sender, receiver = self.state.beats[lease.link.sender], self.state.beats[lease.link.receiver]
        effects = self._ask(lease, sender, receiver, now)
        return effects or self._end(lease)  # what was spare is not any more

    def _ask(self, lease: PageLease, sender: Heartbeat, receiver: Heartbeat, now: float) -> list[Effect]:
        room = receiver.room
        if room is None or room.num_missing:
            return []
        wanted = needs.num_wanted(self._ratio, sender, receiver, len(lease.pages))
        num_pages = min(wanted, room.num_spare - self._num_asked_of(receiver.node), MAX_PAGES_ASKED)
        if num_pages <= 0:
            return []
        lease.num_asked, lease.answer_by_s = num_pages, now + ANSWER_S
        return [_send(LendTo, lease.link, receiver.node, sizes=lease.sizes, num_pages=num_pages)]

    def _lent(self, lease: PageLease, answer: Lent, now: float) -> list[Effect]:
        if not lease.num_asked:
            return []
        effects = [effect for other in self._void_by(lease, answer.pages) for effect in self._end(other)]
        lease.num_asked, lease.answer_by_s = 0, 0.0
        if lease.stage is LeaseStage.LENDING and not answer.pages:
            return [*effects, *self._end(lease)]
        lease.stage = LeaseStage.HELD
        lease.pages = sorted({*lease.pages, *answer.pages})
        self._count_down(lease.link.receiver, len(answer.pages))
        return [*effects, *(self._grant(lease, answer.pages) if answer.pages else []), *self._renew(lease, now)]

    def _void_by(self, lease: PageLease, pages: list[int]) -> list[PageLease]:
        """Other leases that have one of these in the books.

        A receiver lends a page once, so those have ended there, and what told of that was lost.
        """
        others = [one for one in self._of_receiver(lease.link.receiver) if one is not lease]
        return [one for one in others if not set(one.pages).isdisjoint(pages)]

    def _grant(self, lease: PageLease, pages: list[int]) -> list[Effect]:
        room = self.state.beats[lease.link.receiver].room
        assert room is not None, "who lends says so"
        sender = self.state.beats[lease.link.sender]
        ratio = needs.ratio(self._ratio, sender, room.page_bytes, len(lease.pages))
        return [_send(GrantLent, lease.link, lease.link.sender, pages=pages, page_bytes=room.page_bytes, ratio=ratio)]

    def _renew(self, lease: PageLease, now: float) -> list[Effect]:
        lease.renew_s = now + RENEW_S
        return [_send(RenewLease, lease.link, side) for side in (lease.link.sender, lease.link.receiver)]

    def _left(self, lease: PageLease, answer: LeftPages) -> list[Effect]:
        pages = sorted(set(lease.pages).intersection(answer.pages))
        lease.pages = sorted(set(lease.pages).difference(pages))
        lease.num_wanted_back = max(0, lease.num_wanted_back - len(pages))
        if not lease.pages and not lease.num_asked:
            return self._end(lease)
        return [_send(TakeBack, lease.link, lease.link.receiver, pages=pages)] if pages else []

    def _call_back(self, beat: Heartbeat) -> list[Effect]:
        """As a receiver: what its own requests need, from the sender that has most."""
        missing = beat.room.num_missing if beat.room is not None else 0
        leases = sorted(self._of_receiver(beat.node), key=lambda one: (-len(one.pages), one.link.sender))
        missing -= sum(one.num_wanted_back for one in leases)
        effects: list[Effect] = []
        for lease in leases:
            num_pages = min(missing, len(lease.pages) - lease.num_wanted_back)
            effects += self._want(lease, num_pages)
            missing -= max(0, num_pages)
        return effects

    def _give_back(self, beat: Heartbeat) -> list[Effect]:
        """As a sender by ``auto``: what it does not need, half of it at a time."""
        lease = self.state.leases.get(beat.node)
        if self._ratio != "auto" or lease is None or not lease.pages or lease.num_wanted_back or lease.num_asked:
            return []
        return self._want(lease, -(-len(lease.pages) // 2)) if needs.is_relaxed(beat) else []

    def _want(self, lease: PageLease, num_pages: int) -> list[Effect]:
        if num_pages <= 0:
            return []
        lease.num_wanted_back += num_pages
        return [_send(WantBack, lease.link, lease.link.sender, num_pages=num_pages)]

    def _end(self, lease: PageLease, told: str = "") -> list[Effect]:
        """Both sides close their ends, but for the one that has said so itself."""
        del self.state.leases[lease.link.sender]
        sides = (lease.link.sender, lease.link.receiver)
        return [_send(EndLease, lease.link, side) for side in sides if side != told]

    # --- what it goes by --------------------------------------------------------------------------------------------

    def _still_holds(self, lease: PageLease, beat: Heartbeat) -> bool:
        """Whether a node is in the life, and the sender with the model, that a lease is for."""
        if beat.node == lease.link.sender:
            return (beat.epoch, beat.model) == (lease.link.sender_epoch, lease.model)
        if beat.node == lease.link.receiver:
            return beat.epoch == lease.link.receiver_epoch and beat.room is not None
        return True

    def _lender(self, beat: Heartbeat) -> Heartbeat | None:
        """Of its host, the node with the most spare pages that hold a block of its model, on an equal device."""
        others = [self.state.beats[node] for node in self._hosts(beat.node) if node in self.state.beats]
        able = [
            one
            for one in others
            if one.room is not None
            and one.room.page_bytes >= beat.block_bytes > 0
            and one.facts.device == beat.facts.device
            and not one.room.num_missing
            and one.room.num_spare > self._num_asked_of(one.node)
        ]
        return max(able, key=lambda one: one.room.num_spare if one.room else 0, default=None)

    def _with_lent(self, beat: Heartbeat) -> Heartbeat:
        """What a node lends counts as free: it comes back when it is needed, so lending makes no node borrow."""
        if beat.room is None or not beat.block_bytes:
            return beat
        num_lent = sum(len(lease.pages) for lease in self._of_receiver(beat.node))
        num_free = beat.num_free_blocks + num_lent * (beat.room.page_bytes // beat.block_bytes)
        return msgspec.structs.replace(beat, num_free_blocks=min(num_free, beat.num_blocks))

    def _of_receiver(self, node: str) -> list[PageLease]:
        return [lease for lease in self.state.leases.values() if lease.link.receiver == node]

    def _num_asked_of(self, node: str) -> int:
        return sum(lease.num_asked for lease in self._of_receiver(node))

    def _count_down(self, node: str, num_pages: int) -> None:
        """What was spare and is lent, until the node tells anew."""
        beat = self.state.beats[node]
        if beat.room is not None:
            room = msgspec.structs.replace(beat.room, num_spare=max(0, beat.room.num_spare - num_pages))
            self.state.beats[node] = msgspec.structs.replace(beat, room=room)


def _send(kind: type[LeaseMessage], link: LeaseLink, node: str, **fields: Any) -> Effect:
    """To one of its two nodes, in the life that the link is for."""
    epoch = link.sender_epoch if node == link.sender else link.receiver_epoch
    message = kind(node=node, epoch=epoch, link=link, **fields)
    is_end = kind is EndLease  # one that is dead has no inbox, and must not get one
    return Send(streams.node_inbox(node), message, to_existing=is_end, max_entries=streams.MAX_NODE_INBOX)

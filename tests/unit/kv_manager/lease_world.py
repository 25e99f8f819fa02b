"""Nodes that lend and borrow as agents and engines do, behind queues of messages; what is true of their pages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from services.kv_manager.core import KvManagerCore
from shared.config.nodes.offload import OffloadOptions
from shared.messages.memory.leases import (
    LEASE_S,
    EndLease,
    GrantLent,
    LeaseFailed,
    LeaseLink,
    LeaseMade,
    LeaseOrder,
    LeftPages,
    LendTo,
    Lent,
    MakeLease,
    PageRoom,
    RenewLease,
    TakeBack,
    WantBack,
)
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.message import Message, Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeGone
from shared.service.core import Send

NUM_PAGES = 8
NAMES = ("a", "b", "c")
SIZES = LinkSizes(2, 16, 9, 3, 64, 4, 8, 8, 512)


@dataclass
class World:
    """A KV manager, its inbox, and nodes that hear and answer when it is their turn."""

    random: Random
    options: OffloadOptions = field(default_factory=lambda: OffloadOptions(hosts=[list(NAMES)], ratio=0.5))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.core = KvManagerCore(offload=self.options)
        self.to_core: deque[AnyMessage] = deque()
        self.nodes = {name: NodeInWorld(self, name, 1) for name in NAMES}
        self.num_granted = self.num_taken_back = 0

    def hear(self) -> None:
        """The KV manager reads one message."""
        if self.to_core:
            self.fold(self.to_core.popleft())

    def fold(self, message: AnyMessage) -> None:
        for effect in self.core.handle(message, self.now):
            assert isinstance(effect, Send)
            order = effect.message
            node = next(one for one in self.nodes.values() if effect.stream.endswith(one.name))
            if isinstance(order, LendTo):
                room = self.core.leases.state.beats[order.node].room
                assert room is not None
                asked = [one.num_asked for one in self.core.leases.leases.values() if one.link.receiver == order.node]
                assert sum(asked) <= room.num_spare, "all together no more than the receiver has told to be spare"
            node.inbox.append(order)

    def restart(self) -> None:
        """Another instance goes on from a snapshot."""
        state = self.core.snapshot()
        self.core = KvManagerCore(offload=self.options)
        self.core.restore(state)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while self.core.wake_at is not None and self.core.wake_at <= self.now:
            before = self.core.wake_at
            self.fold(Tick())
            if self.core.wake_at == before:
                break
        for node in self.nodes.values():
            node.expire()

    def check(self) -> None:
        """What holds at all times."""
        for receiver in self.nodes.values():
            granted = [page for lease in self.leases_of(receiver) for page in lease]
            assert len(granted) == len(set(granted)), "a page in two leases"
            lent = [page for pages in receiver.lent.values() for page in pages]
            assert len(lent) == len(set(lent))
            assert len(lent) + receiver.num_own <= NUM_PAGES
        for sender in self.nodes.values():
            for link, pages in sender.granted.items():
                receiver = self.nodes[link.receiver]
                if receiver.epoch == link.receiver_epoch and link in receiver.lent:
                    assert pages <= receiver.lent[link], "who names a page has it"

    def leases_of(self, receiver: NodeInWorld) -> list[list[int]]:
        link_epochs = (receiver.name, receiver.epoch)
        leases = self.core.leases.leases.values()
        return [one.pages for one in leases if (one.link.receiver, one.link.receiver_epoch) == link_epochs]

    def settle(self) -> None:
        """Everybody lives, says how it is and is heard, for longer than any lease lasts."""
        for _ in range(int(6 * LEASE_S)):
            self.pass_time(1.0)
            for node in self.nodes.values():
                node.is_stopped = False
                node.beat()
                while node.inbox:
                    node.obey()
            while self.to_core:
                self.hear()
            self.check()


class NodeInWorld:
    """One life of a node."""

    def __init__(self, world: World, name: str, life: int) -> None:
        self.world, self.name, self.life = world, name, life
        self.inbox: deque[Message] = deque()
        self.lent: dict[LeaseLink, set[int]] = {}
        self.granted: dict[LeaseLink, set[int]] = {}
        self.held_s: dict[LeaseLink, float] = {}
        self.num_own = 2
        self.num_waiting = 0
        self.is_stopped = False

    @property
    def epoch(self) -> str:
        return f"{self.name}{self.life}"

    @property
    def num_lent(self) -> int:
        return sum(len(pages) for pages in self.lent.values())

    def beat(self) -> None:
        if self.is_stopped:
            return
        num_free = NUM_PAGES - self.num_own - self.num_lent
        # two pages are what its own requests are expected to need beside what they have
        room = PageRoom(64, num_spare=max(0, num_free - 2), num_missing=min(self.num_lent, max(0, 2 - num_free)))
        self.world.to_core.append(
            Heartbeat(
                node=self.name,
                epoch=self.epoch,
                facts=NodeFacts(device="cpu"),
                model=f"m-{self.name}",
                num_blocks=2 * NUM_PAGES,
                num_free_blocks=2 * num_free,
                block_bytes=32,
                num_running=1,
                num_waiting=self.num_waiting,
                room=room,
            )
        )

    def obey(self) -> None:
        """Do what stands first in the inbox."""
        if self.is_stopped or not self.inbox:
            return
        order = self.inbox.popleft()
        assert isinstance(order, LeaseOrder)
        if order.epoch == self.epoch:
            self._obey(order)

    def _obey(self, order: LeaseOrder) -> None:
        link = order.link
        match order:
            case MakeLease():
                self.granted[link] = set()
                self._hold(link)
                self._say(LeaseMade(node=self.name, epoch=self.epoch, link=link, sizes=SIZES))
            case LendTo():
                self._lend(link, order.num_pages)
            case EndLease():
                self._end(link)
            case _ if link in self.held_s:
                self._go_on(order)

    def _lend(self, link: LeaseLink, num_pages: int) -> None:
        if self.world.random.random() < 0.05:
            self._end(link)
            self._say(LeaseFailed(node=self.name, epoch=self.epoch, link=link, reason="no memory"))
            return
        self._hold(link)
        taken = {page for pages in self.lent.values() for page in pages}
        free = [page for page in range(NUM_PAGES) if page not in taken]
        pages = free[: min(num_pages, NUM_PAGES - self.num_own - len(taken))]
        self.lent.setdefault(link, set()).update(pages)
        self._say(Lent(node=self.name, epoch=self.epoch, link=link, pages=pages))

    def _go_on(self, order: LeaseOrder) -> None:
        link = order.link
        match order:
            case GrantLent():
                self.granted[link].update(order.pages)
                self.world.num_granted += len(order.pages)
            case WantBack():
                pages = sorted(self.granted[link])[: order.num_pages]
                self.granted[link].difference_update(pages)
                self._say(LeftPages(node=self.name, epoch=self.epoch, link=link, pages=pages))
            case TakeBack():
                self.lent[link].difference_update(order.pages)
                self.world.num_taken_back += len(order.pages)
            case RenewLease():
                self._hold(link)

    def _hold(self, link: LeaseLink) -> None:
        self.held_s[link] = self.world.now + LEASE_S

    def _end(self, link: LeaseLink) -> None:
        for kept in (self.lent, self.granted, self.held_s):
            kept.pop(link, None)

    def expire(self) -> None:
        for link, until_s in list(self.held_s.items()):
            if self.world.now >= until_s and not self.is_stopped:
                self._end(link)

    def _say(self, message: AnyMessage) -> None:
        self.world.to_core.append(message)

    def die(self, *, says_goodbye: bool) -> None:
        if says_goodbye:
            self.world.to_core.append(NodeGone(node=self.name, epoch=self.epoch))
        self.world.nodes[self.name] = NodeInWorld(self.world, self.name, self.life + 1)

"""Who lends pages to whom: a lease's way by hand, and what holds whatever happens."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from services.kv_manager.core import NODE_TIMEOUT_S, KvManagerCore
from services.kv_manager.leases import ANSWER_S, RENEW_S, RETRY_S
from shared.bus import streams
from shared.config.nodes.offload import OffloadOptions
from shared.messages.memory.leases import (
    EndLease,
    GrantLent,
    LeaseFailed,
    LeaseLink,
    LeaseMade,
    LeaseMessage,
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
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeGone
from shared.service.core import Send
from tests.unit.kv_manager.lease_world import NAMES, NUM_PAGES, NodeInWorld, World

HOT = LeaseLink("hot", "h1", "cold", "c1")
SIZES = LinkSizes(30, 16, 9, 3, 64, 4, 8, 8, 512)


def hot(*, num_free_blocks: int = 0, num_waiting: int = 3, epoch: str = "h1", model: str = "m") -> Heartbeat:
    """Ten pages of its own."""
    return beat("hot", epoch, model, num_free_blocks, num_waiting, PageRoom(100))


def cold(num_spare: int = 6, num_missing: int = 0, *, epoch: str = "c1", page_bytes: int = 100) -> Heartbeat:
    return beat("cold", epoch, "n", 20, 0, PageRoom(page_bytes, num_spare, num_missing))


def beat(node: str, epoch: str, model: str, num_free: int, num_waiting: int, room: PageRoom) -> Heartbeat:
    return Heartbeat(
        node=node,
        epoch=epoch,
        facts=NodeFacts(device="cpu"),
        model=model,
        num_blocks=20,
        num_free_blocks=num_free,
        block_bytes=50,
        num_running=1,
        num_waiting=num_waiting,
        room=room,
    )


class Told:
    """A core, and what it told whom."""

    def __init__(self, ratio: float | str = 0.5) -> None:
        options = OffloadOptions.model_validate({"hosts": [["hot", "cold"]], "ratio": ratio})
        self.core = KvManagerCore(offload=options)

    def hear(self, message: AnyMessage, now: float = 0.0) -> list[LeaseMessage]:
        effects = self.core.handle(message, now)
        orders = []
        for one in effects:
            assert isinstance(one, Send)
            assert isinstance(one.message, LeaseMessage)
            assert one.stream == streams.node_inbox(one.message.node)
            orders.append(one.message)
        return orders

    def lend(self, pages: list[int], now: float = 0.0) -> list[LeaseMessage]:
        """Up to the first pages."""
        self.hear(cold(), now)
        assert [type(one) for one in self.hear(hot(), now)] == [MakeLease]
        made = LeaseMade(node="hot", epoch="h1", link=HOT, sizes=SIZES)
        assert [type(one) for one in self.hear(made, now)] == [LendTo]
        return self.hear(Lent(node="cold", epoch="c1", link=HOT, pages=pages), now)


def test_a_lease_from_the_first_wish_to_its_pages() -> None:
    told = Told()
    assert told.hear(hot()) == [], "nobody has told of spare pages yet"
    assert told.hear(cold()) == []
    assert told.hear(hot()) == [MakeLease(node="hot", epoch="h1", link=HOT, model="m")]
    assert told.hear(hot()) == [], "once"
    # as many as it has itself would make half of its requests remote; six are spare
    made = LeaseMade(node="hot", epoch="h1", link=HOT, sizes=SIZES)
    assert told.hear(made) == [LendTo(node="cold", epoch="c1", link=HOT, sizes=SIZES, num_pages=6)]
    assert told.hear(Lent(node="cold", epoch="c1", link=HOT, pages=[3, 4, 5]), 1.0) == [
        GrantLent(node="hot", epoch="h1", link=HOT, pages=[3, 4, 5], page_bytes=100, ratio=0.5),
        RenewLease(node="hot", epoch="h1", link=HOT),
        RenewLease(node="cold", epoch="c1", link=HOT),
    ]
    assert told.core.describe()["leases"] == {"hot": {"receiver": "cold", "stage": "held", "num_pages": 3}}
    # three are spare by what is known; seven are wanted
    assert told.hear(hot(), 2.0) == [LendTo(node="cold", epoch="c1", link=HOT, sizes=SIZES, num_pages=3)]
    assert told.hear(Lent(node="cold", epoch="c1", link=HOT, pages=[]), 3.0)[0] == RenewLease(
        node="hot", epoch="h1", link=HOT
    )


def test_by_auto_a_node_borrows_under_pressure_and_gives_back_when_it_is_over() -> None:
    told = Told("auto")
    told.hear(cold())
    assert told.hear(hot(num_free_blocks=2, num_waiting=0)) == [], "a tenth of its blocks is free"
    assert [type(one) for one in told.hear(hot(num_free_blocks=1, num_waiting=0))] == [MakeLease]
    (lend,) = told.hear(LeaseMade(node="hot", epoch="h1", link=HOT, sizes=SIZES))
    assert isinstance(lend, LendTo)
    assert lend.num_pages == 1, "an eighth of ten"
    grant, *_ = told.hear(Lent(node="cold", epoch="c1", link=HOT, pages=[7]))
    assert isinstance(grant, GrantLent)
    assert grant.ratio == 1 / 11
    assert told.hear(hot(num_free_blocks=5, num_waiting=0)) == []
    assert told.hear(hot(num_free_blocks=11, num_waiting=0)) == [
        WantBack(node="hot", epoch="h1", link=HOT, num_pages=1)
    ]
    ends = told.hear(LeftPages(node="hot", epoch="h1", link=HOT, pages=[7]))
    assert [(type(one), one.node) for one in ends] == [(EndLease, "hot"), (EndLease, "cold")]


def test_by_auto_what_a_node_lends_is_no_pressure() -> None:
    told = Told("auto")
    told.lend([3, 4, 5])
    told.hear(beat("hot", "h1", "m", 10, 0, PageRoom(100, num_spare=4)))
    # two blocks lie in a page: with what it lends, seven and six of twenty are free
    assert told.hear(beat("cold", "c1", "n", 1, 0, PageRoom(100))) == []
    assert told.hear(beat("cold", "c1", "n", 0, 0, PageRoom(100))) == []
    orders = told.hear(beat("cold", "c1", "n", 0, 1, PageRoom(100)))
    assert [(type(one), one.node) for one in orders] == [(MakeLease, "cold")], "somebody waits"


def test_what_the_receiver_needs_is_called_back_and_given_back_when_it_was_left() -> None:
    told = Told()
    told.lend([3, 4, 5])
    assert told.hear(cold(0, 2)) == [WantBack(node="hot", epoch="h1", link=HOT, num_pages=2)]
    assert told.hear(cold(0, 2)) == [], "once"
    assert told.hear(cold(0, 3)) == [WantBack(node="hot", epoch="h1", link=HOT, num_pages=1)]
    left = LeftPages(node="hot", epoch="h1", link=HOT, pages=[4])
    assert told.hear(left) == [TakeBack(node="cold", epoch="c1", link=HOT, pages=[4])]
    assert told.hear(hot()) == [], "no more is lent while something is wanted back"


def test_a_lease_is_renewed_and_outlives_the_kv_manager() -> None:
    told = Told()
    told.lend([3], now=1.0)
    for node in (hot(), cold(0)):
        told.hear(node, RENEW_S)
    assert told.core.wake_at == 1.0 + RENEW_S
    state = told.core.snapshot()
    other = Told()
    other.core.restore(state)
    assert other.hear(Tick(), 1.0 + RENEW_S) == [
        RenewLease(node="hot", epoch="h1", link=HOT),
        RenewLease(node="cold", epoch="c1", link=HOT),
    ]


@pytest.mark.parametrize(
    "end",
    [
        NodeGone(node="hot", epoch="h1"),
        NodeGone(node="cold", epoch="c1"),
        hot(epoch="h2"),
        hot(model="another"),
        cold(epoch="c2"),
    ],
)
def test_a_lease_ends_with_either_life_and_with_the_model(end: AnyMessage) -> None:
    told = Told()
    told.lend([3])
    ended = [one for one in told.hear(end) if isinstance(one, EndLease)]
    assert [(one.node, one.epoch) for one in ended] == [("hot", "h1"), ("cold", "c1")]


def test_silence_ends_it_too() -> None:
    told = Told()
    told.lend([3])
    for now in (2.0, 4.0, NODE_TIMEOUT_S + 1):
        told.hear(cold(), now)
    assert EndLease(node="cold", epoch="c1", link=HOT) in told.hear(Tick(), NODE_TIMEOUT_S + 1)


def test_who_refuses_is_left_alone_for_a_while() -> None:
    told = Told()
    told.hear(cold())
    told.hear(hot())
    failed = LeaseFailed(node="hot", epoch="h1", link=HOT, reason="/dev/shm is full")
    assert told.hear(failed, 1.0) == [EndLease(node="cold", epoch="c1", link=HOT)]
    assert told.hear(hot(), RETRY_S) == []
    assert [type(one) for one in told.hear(hot(), 1.0 + RETRY_S)] == [MakeLease]


def test_who_does_not_answer_has_no_lease() -> None:
    told = Told()
    told.hear(cold(), 1.0)
    told.hear(hot(), 1.0)
    for now in (4.0, 8.0, 12.0, 16.0):
        told.hear(cold(), now)
        told.hear(hot(), now)
    ended = told.hear(Tick(), 1.0 + ANSWER_S)
    assert [(type(one), one.node) for one in ended] == [(EndLease, "hot"), (EndLease, "cold")]


def test_an_answer_that_belongs_to_no_lease_ends_there() -> None:
    told = Told()
    stale = LeaseLink("hot", "h0", "cold", "c1")
    assert told.hear(Lent(node="cold", epoch="c1", link=stale, pages=[1])) == [
        EndLease(node="cold", epoch="c1", link=stale)
    ]
    assert told.hear(LeaseFailed(node="cold", epoch="c1", link=stale, reason="gone")) == []


def test_a_page_that_is_lent_again_says_that_the_lease_before_has_ended() -> None:
    """The KV manager's inbox is bounded: what told of that end may be gone from it."""
    told = Told()
    told.core = KvManagerCore(offload=OffloadOptions(hosts=[["hot", "warm", "cold"]], ratio=0.5))
    told.lend([3, 4, 5])
    warm = msgspec.structs.replace(hot(), node="warm", epoch="w1")
    link = LeaseLink("warm", "w1", "cold", "c1")
    told.hear(cold(), 1.0)
    assert [type(one) for one in told.hear(warm, 1.0)] == [MakeLease]
    assert [type(one) for one in told.hear(LeaseMade(node="warm", epoch="w1", link=link, sizes=SIZES), 1.0)] == [LendTo]
    orders = told.hear(Lent(node="cold", epoch="c1", link=link, pages=[5, 6]), 1.0)
    assert orders[:3] == [
        EndLease(node="hot", epoch="h1", link=HOT),
        EndLease(node="cold", epoch="c1", link=HOT),
        GrantLent(node="warm", epoch="w1", link=link, pages=[5, 6], page_bytes=100, ratio=0.5),
    ]
    assert {name: lease.pages for name, lease in told.core.leases.leases.items()} == {"warm": [5, 6]}


def test_pages_that_hold_no_block_and_unequal_devices_are_nothing_to_borrow() -> None:
    told = Told()
    told.hear(cold(page_bytes=49))
    assert told.hear(hot()) == []
    other = cold()
    told.hear(msgspec.structs.replace(other, facts=NodeFacts(device="cuda")))
    assert told.hear(hot()) == []
    told.hear(cold())
    assert told.hear(hot()) != []


def test_nodes_that_are_not_named_neither_lend_nor_borrow() -> None:
    core = KvManagerCore()
    assert core.handle(cold(), 0.0) == []
    assert core.handle(hot(), 0.0) == []


def draw_an_event(world: World) -> None:
    random = world.random
    node = random.choice(list(world.nodes.values()))
    match random.randrange(12):
        case 0 | 1:
            node.beat()
        case 2 | 3 | 4:
            node.obey()
        case 5 | 6 | 7:
            world.hear()
        case 8:
            world.pass_time(random.choice([0.1, 1.0, 3.0]))
        case 9:
            node.num_own = random.randint(1, NUM_PAGES - node.num_lent)
        case 10:
            node.num_waiting = random.randint(0, 2)
        case _:
            draw_a_fault(world, node)


def draw_a_fault(world: World, node: NodeInWorld) -> None:
    chance = world.random.random()
    if chance < 0.2:
        node.die(says_goodbye=chance < 0.1)
    elif chance < 0.3:
        node.is_stopped = not node.is_stopped
    elif chance < 0.4:
        world.restart()


@pytest.mark.parametrize("ratio", [0.5, "auto"])
def test_whatever_happens_pages_are_lent_once_and_come_back(ratio: float | str) -> None:
    num_granted = num_taken_back = 0
    for seed in range(60):
        options = OffloadOptions.model_validate({"hosts": [NAMES], "ratio": ratio})
        world = World(Random(seed), options)
        for _ in range(250):
            draw_an_event(world)
            world.check()
        world.settle()
        for node in world.nodes.values():
            booked = [pages for pages in world.leases_of(node) if pages]
            assert sorted(sorted(pages) for pages in node.lent.values() if pages) == sorted(booked)
        num_granted += world.num_granted
        num_taken_back += world.num_taken_back
    assert num_granted > 100
    # by `auto` a lease is small, and what is called back is as a rule all of it: then it ends
    assert num_taken_back > (0 if ratio == "auto" else 20)

"""What a node does about leases: orders become commands, the engine's answers are said, and what nobody renews ends."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.actions import AgentAction, LeasesDue, SayLease, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.process.protocol import link_protocol, protocol
from shared.messages.memory.leases import (
    LEASE_S,
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
from tests.unit.agent.events import EPOCH, make_agent, stats

SIZES = LinkSizes(30, 16, 9, 3, 64, 4, 8, 8, 512)
AS_SENDER = LeaseLink("n0", EPOCH, "n1", "c1")
AS_RECEIVER = LeaseLink("n1", "c1", "n0", EPOCH)
SENDING, RECEIVING = LinkName(EPOCH, "c1"), LinkName("c1", EPOCH)


def order(kind: type[LeaseMessage], link: LeaseLink, epoch: str = EPOCH, **fields: object) -> LeaseMessage:
    return kind(node="n0", epoch=epoch, link=link, **fields)  # type: ignore[arg-type]


def handle(agent: AgentCore, event: object) -> list[AgentAction]:
    return agent.handle(event)  # type: ignore[arg-type]


def said(kind: type[LeaseMessage], link: LeaseLink, **fields: object) -> AgentAction:
    return SayLease(order(kind, link, **fields))  # type: ignore[arg-type]


def sender() -> AgentCore:
    agent = make_agent("a")
    handle(agent, order(MakeLease, AS_SENDER, model="a"))
    handle(agent, link_protocol.LinkMade(SENDING, SIZES))
    return agent


def test_a_senders_way() -> None:
    agent = make_agent("a")
    assert handle(agent, order(MakeLease, AS_SENDER, model="a")) == [Tell(link_protocol.MakeLink(SENDING, "a"))]
    assert handle(agent, link_protocol.LinkMade(SENDING, SIZES)) == [said(LeaseMade, AS_SENDER, sizes=SIZES)]
    grant = order(GrantLent, AS_SENDER, pages=[3, 5], page_bytes=4096, ratio=0.25)
    assert handle(agent, grant) == [
        Tell(link_protocol.GrantPages(SENDING, [3, 5], 4096)),
        Tell(link_protocol.SetRemoteRatio(SENDING, 0.25)),
    ]
    assert handle(agent, order(WantBack, AS_SENDER, num_pages=1)) == [Tell(link_protocol.WantPages(SENDING, 1))]
    assert handle(agent, link_protocol.PagesReturned(SENDING, [5])) == [said(LeftPages, AS_SENDER, pages=[5])]
    assert handle(agent, link_protocol.RemoteRequestsLost(SENDING, 2)) == []
    assert handle(agent, order(EndLease, AS_SENDER)) == [Tell(link_protocol.CloseLink(SENDING))]
    assert handle(agent, link_protocol.PagesReturned(SENDING, [3])) == [], "it has ended"


def test_a_receivers_way() -> None:
    agent = make_agent("a")
    lend = order(LendTo, AS_RECEIVER, sizes=SIZES, num_pages=4)
    assert handle(agent, lend) == [Tell(link_protocol.ReceiveLink(RECEIVING, SIZES))]
    assert handle(agent, link_protocol.LinkServed(RECEIVING, 4096)) == [Tell(link_protocol.LendPages(RECEIVING, 4))]
    assert handle(agent, link_protocol.PagesLent(RECEIVING, [0, 1])) == [said(Lent, AS_RECEIVER, pages=[0, 1])]
    more = order(LendTo, AS_RECEIVER, sizes=SIZES, num_pages=2)
    assert handle(agent, more) == [Tell(link_protocol.LendPages(RECEIVING, 2))]
    assert handle(agent, order(TakeBack, AS_RECEIVER, pages=[1])) == [Tell(link_protocol.TakeBackPages(RECEIVING, [1]))]


def test_what_nobody_renews_ends() -> None:
    agent = make_agent("a")
    handle(agent, LeasesDue(95.0 - LEASE_S))
    handle(agent, order(MakeLease, AS_SENDER, model="a"))
    assert handle(agent, LeasesDue(100.0 - LEASE_S)) == []
    handle(agent, order(RenewLease, AS_SENDER))
    assert handle(agent, LeasesDue(99.5)) == []
    assert handle(agent, LeasesDue(100.0)) == [
        Tell(link_protocol.CloseLink(SENDING)),
        said(LeaseFailed, AS_SENDER, reason="it was not renewed in time"),
    ]
    assert handle(agent, LeasesDue(200.0)) == []


def test_a_link_that_is_refused_is_no_lease() -> None:
    agent = sender()
    assert handle(agent, link_protocol.LinkRefused(SENDING, "/dev/shm is full")) == [
        Tell(link_protocol.CloseLink(SENDING)),
        said(LeaseFailed, AS_SENDER, reason="/dev/shm is full"),
    ]
    gone = order(MakeLease, AS_SENDER, model="b")
    assert handle(agent, gone) == [said(LeaseFailed, AS_SENDER, reason="'b' is not loaded here any more")]


def test_orders_for_another_life_and_about_links_that_have_ended_do_nothing() -> None:
    agent = sender()
    assert handle(agent, order(EndLease, AS_SENDER, "an earlier one")) == []
    handle(agent, order(EndLease, AS_SENDER))
    for late in (
        order(GrantLent, AS_SENDER, pages=[1], page_bytes=1, ratio=0.5),
        order(WantBack, AS_SENDER, num_pages=1),
        order(TakeBack, AS_SENDER, pages=[1]),
        order(EndLease, AS_SENDER),
    ):
        assert handle(agent, late) == []


def test_a_node_tells_of_its_pages_once_its_engine_does() -> None:
    agent = make_agent("a")
    assert agent.heartbeat().room is None
    told = replace(stats(), page_bytes=4096, num_spare_pages=3, num_missing_pages=1)
    agent.handle(protocol.StepReport([], told))
    assert agent.heartbeat().room == PageRoom(4096, num_spare=3, num_missing=1)


def test_a_kv_manager_that_has_missed_the_end_of_a_lease_hears_of_it_when_it_renews() -> None:
    """Its inbox is bounded: when it was away for longer than a lease lasts, the end may be gone from there."""
    agent = sender()
    handle(agent, LeasesDue(0.0))
    assert said(LeaseFailed, AS_SENDER, reason="it was not renewed in time") in handle(agent, LeasesDue(LEASE_S))
    assert handle(agent, order(WantBack, AS_SENDER, num_pages=1)) == []
    renewed = handle(agent, order(RenewLease, AS_SENDER))
    assert renewed == [said(LeaseFailed, AS_SENDER, reason="it has ended here")]

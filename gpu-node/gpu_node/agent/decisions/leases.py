"""Links to other engines of this host: orders of the KV manager become commands, the engine's answers become its own.

Nothing is decided here but one thing: a lease that is not renewed ends. The passing of time is told by `LeasesDue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_node.agent.decisions.actions import AgentAction, SayLease, Tell
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.process.protocol import link_protocol
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
    RenewLease,
    TakeBack,
    WantBack,
)


@dataclass(slots=True)
class _Held:
    """A link that this node's engine was told to have."""

    link: LeaseLink
    until_s: float
    num_to_lend: int = 0
    """As soon as the engine serves it."""


class NodeLeases:
    """Of one epoch."""

    def __init__(self, node: str, epoch: str) -> None:
        self._node, self._epoch = node, epoch
        self._held: dict[LinkName, _Held] = {}
        self._now = 0.0

    @property
    def links(self) -> list[LeaseLink]:
        """Those that the engine has."""
        return [held.link for held in self._held.values()]

    # --- the KV manager's orders ------------------------------------------------------------------------------------

    def obey(self, order: LeaseOrder, model: str) -> list[AgentAction]:
        """``model``: what is loaded. Orders about a link that is not there have been overtaken by its end.

        A renewal of one means that what told of its end was lost (the KV manager was away for longer than its inbox
        holds), so that is told again, or the lease would stay in its books, and no other be made, for ever.
        """
        name = _name(order.link)
        match order:
            case MakeLease():
                if order.model != model:
                    return [self._failed(order.link, f"{order.model!r} is not loaded here any more")]
                self._hold(order.link)
                return [Tell(link_protocol.MakeLink(name, model))]
            case LendTo():
                return self._lend(order)
            case EndLease():
                return self._close(name)
        if name not in self._held:
            return [self._failed(order.link, "it has ended here")] if isinstance(order, RenewLease) else []
        return self._go_on(order, name)

    def _go_on(self, order: LeaseOrder, name: LinkName) -> list[AgentAction]:
        match order:
            case GrantLent():
                grant = link_protocol.GrantPages(name, order.pages, order.page_bytes)
                return [Tell(grant), Tell(link_protocol.SetRemoteRatio(name, order.ratio))]
            case WantBack():
                return [Tell(link_protocol.WantPages(name, order.num_pages))]
            case TakeBack():
                return [Tell(link_protocol.TakeBackPages(name, order.pages))]
            case RenewLease():
                self._held[name].until_s = self._now + LEASE_S
        return []

    def _lend(self, order: LendTo) -> list[AgentAction]:
        name = _name(order.link)
        if name not in self._held:
            self._hold(order.link)
            self._held[name].num_to_lend = order.num_pages
            return [Tell(link_protocol.ReceiveLink(name, order.sizes))]
        return [Tell(link_protocol.LendPages(name, order.num_pages))]

    def _hold(self, link: LeaseLink) -> None:
        self._held[_name(link)] = _Held(link, self._now + LEASE_S)

    # --- the passing of time ----------------------------------------------------------------------------------------

    def due(self, now: float) -> list[AgentAction]:
        """End what has not been renewed; the KV manager hears of it, should it be there."""
        self._now = now
        over = [name for name, held in self._held.items() if now >= held.until_s]
        return [action for name in over for action in self._give_up(name, "it was not renewed in time")]

    # --- the engine's answers ---------------------------------------------------------------------------------------

    def told(self, event: link_protocol.LinkFrame) -> list[AgentAction]:
        """Answers about a link that has ended meanwhile say nothing."""
        held = self._held.get(event.link)
        if held is None:
            return []
        match event:
            case link_protocol.LinkMade(sizes=sizes):
                return [self._say(LeaseMade, held.link, sizes=sizes)]
            case link_protocol.LinkServed():
                return [Tell(link_protocol.LendPages(event.link, held.num_to_lend))]
            case link_protocol.LinkRefused(reason=reason):
                return self._give_up(event.link, reason)
            case link_protocol.PagesLent(pages=pages):
                return [self._say(Lent, held.link, pages=pages)]
            case link_protocol.PagesReturned(pages=pages):
                return [self._say(LeftPages, held.link, pages=pages)]
        return []  # requests that were lost are computed again; the link is used again

    def _give_up(self, name: LinkName, reason: str) -> list[AgentAction]:
        link = self._held[name].link
        return [*self._close(name), self._failed(link, reason)]

    def _close(self, name: LinkName) -> list[AgentAction]:
        if self._held.pop(name, None) is None:
            return []
        return [Tell(link_protocol.CloseLink(name))]

    def _say(self, kind: type[LeaseMade | Lent | LeftPages], link: LeaseLink, **fields: Any) -> AgentAction:
        return SayLease(kind(node=self._node, epoch=self._epoch, link=link, **fields))

    def _failed(self, link: LeaseLink, reason: str) -> AgentAction:
        return SayLease(LeaseFailed(node=self._node, epoch=self._epoch, link=link, reason=reason))


def _name(link: LeaseLink) -> LinkName:
    return LinkName(link.sender_epoch, link.receiver_epoch)

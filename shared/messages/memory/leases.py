"""Messages about pages that one node lends to another one of its host: KV manager to agents, and their answers.

A link joins two epochs; a lease is what a link may use. The KV manager alone decides; agents do what they are told with
their engines, say what came of it, and end by themselves what is not renewed.
"""

from __future__ import annotations

import msgspec

from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.message import Message

LEASE_S = 15.0
"""That a lease holds without being renewed; three times as long as a node may be silent."""


class LeaseLink(msgspec.Struct, frozen=True):
    """Which two epochs a lease joins. Another life of either is another link."""

    sender: str
    """Node of the model whose requests lie elsewhere."""
    sender_epoch: str
    receiver: str
    receiver_epoch: str


class PageRoom(msgspec.Struct, frozen=True):
    """What a node that may lend says of its pages."""

    page_bytes: int
    num_spare: int = 0
    """That it could lend beside those that are lent: no request holds them, and its own are not expected to."""
    num_missing: int = 0
    """Of those that are lent, what its own requests need back."""


class LeaseMessage(Message, frozen=True, kw_only=True):
    """What all of them have."""

    node: str
    """The other node: to which, or from which."""
    epoch: str
    link: LeaseLink


# --- KV manager to node ---------------------------------------------------------------------------------------------


class MakeLease(LeaseMessage, frozen=True, kw_only=True):
    """To the sender: make a link for this model's requests. Answered by `LeaseMade` or `LeaseFailed`."""

    model: str


class LendTo(LeaseMessage, frozen=True, kw_only=True):
    """To the receiver: serve this link, if you do not, and lend so many pages more.

    Answered by `Lent` or `LeaseFailed`.
    """

    sizes: LinkSizes
    """As `LeaseMade` told."""
    num_pages: int


class GrantLent(LeaseMessage, frozen=True, kw_only=True):
    """To the sender: these pages are yours as well."""

    pages: list[int]
    page_bytes: int
    ratio: float
    """Of the requests that run, so many shall be remote."""


class WantBack(LeaseMessage, frozen=True, kw_only=True):
    """To the sender: leave so many pages. Answered by `LeftPages`, once or several times."""

    num_pages: int


class TakeBack(LeaseMessage, frozen=True, kw_only=True):
    """To the receiver: the sender uses these no more."""

    pages: list[int]


class RenewLease(LeaseMessage, frozen=True, kw_only=True):
    """To both: it holds for `LEASE_S` again. Who hears nothing of it until then ends the link by itself."""


class EndLease(LeaseMessage, frozen=True, kw_only=True):
    """To either: close the link at once. What lies there is computed again, lent pages are free."""


# --- node to KV manager ---------------------------------------------------------------------------------------------


class LeaseMade(LeaseMessage, frozen=True, kw_only=True):
    """The sender has a link; its receiver may open it."""

    sizes: LinkSizes
    """Told to the receiver as they are."""


class LeaseFailed(LeaseMessage, frozen=True, kw_only=True):
    """In place of any answer: it cannot be, or is over here. Nothing holds at this node any more."""

    reason: str


class Lent(LeaseMessage, frozen=True, kw_only=True):
    """The receiver has lent these: as many as were asked for, or as were free."""

    pages: list[int]


class LeftPages(LeaseMessage, frozen=True, kw_only=True):
    """Nothing of the sender lies in these any more."""

    pages: list[int]


LeaseOrder = MakeLease | LendTo | GrantLent | WantBack | TakeBack | RenewLease | EndLease
"""What a node is told."""
LeaseAnswer = LeaseMade | LeaseFailed | Lent | LeftPages
"""What it answers."""

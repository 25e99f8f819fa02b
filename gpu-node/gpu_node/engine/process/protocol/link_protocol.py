"""What agent and engine say to each other of links: this engine's requests at another's device, and others' here."""

from __future__ import annotations

from gpu_node.engine.border.links import LinkName, LinkTimes
from gpu_node.engine.process.protocol.frames import Frame
from shared.messages.memory.link_sizes import LinkSizes


class LinkFrame(Frame, frozen=True):
    """About a link between two engines of a host."""

    link: LinkName


class LinkCommandFrame(LinkFrame, frozen=True):
    """Said to one of them."""


class MakeLink(LinkCommandFrame, frozen=True):
    """Make a link for a loaded model's requests to the engine of epoch ``link.receiver``.

    Answered by `LinkMade` or `LinkRefused`, as all commands about links may be.
    """

    model: str


class ReceiveLink(LinkCommandFrame, frozen=True):
    """Serve a link that another engine made, with the sizes of its `LinkMade`. Answered by `LinkServed`."""

    sizes: LinkSizes


class LendPages(LinkCommandFrame, frozen=True):
    """Lend the sender of a served link so many pages more. Answered by `PagesLent`."""

    num_pages: int


class TakeBackPages(LinkCommandFrame, frozen=True):
    """The sender has given these pages back, or is to be refused what it does there from now on."""

    pages: list[int]


class GrantPages(LinkCommandFrame, frozen=True):
    """A receiver has lent these pages (`PagesLent`), as large as its `LinkServed` says."""

    pages: list[int]
    page_bytes: int


class WantPages(LinkCommandFrame, frozen=True):
    """A receiver wants so many pages back: requests are called back for it.

    Answered by `PagesReturned`, once or several times, until so many have come.
    """

    num_pages: int


class SetRemoteRatio(LinkCommandFrame, frozen=True):
    """Of the sender's requests that run, so many shall lie at the receiver: those that begin are chosen so."""

    ratio: float


class AskLinkTimes(LinkCommandFrame, frozen=True):
    """What has been measured at this end? Answered by `LinkTimesTold`."""

    model: str
    """That is loaded here; of a receiver, whose operators are told of."""


class CloseLink(LinkCommandFrame, frozen=True):
    """Either end, at once: what lies at the receiver is computed again, lent pages are free. Unknown ones: nothing."""


LinkCommand = (
    MakeLink
    | ReceiveLink
    | LendPages
    | TakeBackPages
    | GrantPages
    | WantPages
    | SetRemoteRatio
    | AskLinkTimes
    | CloseLink
)


class LinkMade(LinkFrame, frozen=True):
    """Answer to `MakeLink`: the receiver may open it."""

    sizes: LinkSizes


class LinkServed(LinkFrame, frozen=True):
    """Answer to `ReceiveLink`."""

    page_bytes: int
    """Of the receiver."""


class LinkRefused(LinkFrame, frozen=True):
    """In place of any answer about a link: it cannot be, or is not there. Nothing has changed."""

    reason: str
    """In one line."""


class PagesLent(LinkFrame, frozen=True):
    """Answer to `LendPages`: as many as were free."""

    pages: list[int]


class PagesReturned(LinkFrame, frozen=True):
    """Nothing of the sender lies in these pages any more."""

    pages: list[int]


class RemoteRequestsLost(LinkFrame, frozen=True):
    """The receiver missed a deadline, or refused what was sent: so many requests are computed again.

    The link is used again as soon as the receiver serves it.
    """

    num_requests: int


class LinkTimesTold(LinkFrame, frozen=True):
    """Answer to `AskLinkTimes`."""

    times: LinkTimes


LinkEvent = LinkTimesTold | LinkMade | LinkServed | LinkRefused | PagesLent | PagesReturned | RemoteRequestsLost

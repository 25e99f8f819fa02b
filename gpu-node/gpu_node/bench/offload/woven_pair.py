"""Two engine processes, a hot model's and a cold one's, and what agents would have them do about their link."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.bench.offload.pair_times import PairTimes
from gpu_node.engine.border.links import LinkName, LinkRefusedError
from gpu_node.engine.process.protocol.link_protocol import (
    AskLinkTimes,
    CloseLink,
    GrantPages,
    LendPages,
    LinkMade,
    LinkRefused,
    LinkServed,
    LinkTimesTold,
    MakeLink,
    PagesLent,
    PagesReturned,
    ReceiveLink,
    RemoteRequestsLost,
    SetRemoteRatio,
    TakeBackPages,
    WantPages,
)
from gpu_node.engine.process.protocol.protocol import EngineEvent, StepReport


@dataclass(slots=True)
class WovenPair:
    """The sender is the hot one."""

    hot: EngineEnd
    cold: EngineEnd
    model: str
    """The hot one's."""
    link: LinkName
    page_bytes: int = 0
    granted: list[int] = field(default_factory=list)
    num_lost: int = 0
    """Requests that were computed again because the receiver lost them."""
    is_closed: bool = False

    def connect(self) -> None:
        """Make a link and serve it. Raises `LinkRefusedError`."""
        made = self.hot.ask(LinkMade, MakeLink(self.link, self.model))
        self.page_bytes = self.cold.ask(LinkServed, ReceiveLink(self.link, made.sizes)).page_bytes

    def lend(self, num_pages: int) -> None:
        """Pages of the cold one, for the hot one's requests."""
        lent = self.cold.ask(PagesLent, LendPages(self.link, num_pages))
        self.granted += lent.pages
        self.hot.send(GrantPages(self.link, lent.pages, self.page_bytes))

    def times(self, cold_model: str) -> PairTimes:
        """What both ends have measured by now; of the cold one, beside the steps of its own model."""
        hot = self.hot.ask(LinkTimesTold, AskLinkTimes(self.link, self.model))
        cold = self.cold.ask(LinkTimesTold, AskLinkTimes(self.link, cold_model))
        return PairTimes(hot.times, cold.times)

    def set_ratio(self, ratio: float) -> None:
        """Of the hot one's requests, so many shall be remote."""
        self.hot.send(SetRemoteRatio(self.link, ratio))

    def want_back(self, num_pages: int) -> None:
        """The cold one wants pages for itself; `hear` gives them back to it."""
        self.hot.send(WantPages(self.link, num_pages))

    def close(self) -> None:
        """Both ends."""
        self.close_sender()
        self.cold.send(CloseLink(self.link))

    def close_sender(self) -> None:
        """The hot one's end, at once: the receiver may be gone."""
        self.hot.send(CloseLink(self.link))
        self.granted.clear()
        self.is_closed = True

    def hear(self, event: EngineEvent) -> StepReport | None:
        """What the hot one says; what is about requests is handed on."""
        match event:
            case StepReport():
                return event
            case PagesReturned(pages=pages):
                self.granted = [page for page in self.granted if page not in pages]
                if not self.is_closed:  # else the receiver has them already, or is gone
                    self.cold.send(TakeBackPages(self.link, pages))
            case RemoteRequestsLost(num_requests=num_requests):
                self.num_lost += num_requests
            case LinkRefused(reason=reason):
                raise LinkRefusedError(reason)
        return None

"""What an engine does about commands that are about links, and what its agent hears of them."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gpu_node.engine.border.links import LinkRefusedError
from gpu_node.engine.engine import Engine
from gpu_node.engine.offload.offloading import LentTaken, PagesBack, RemoteLost
from gpu_node.engine.process.protocol.link_protocol import (
    AskLinkTimes,
    CloseLink,
    GrantPages,
    LendPages,
    LinkCommandFrame,
    LinkEvent,
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
from gpu_node.engine.process.protocol.protocol import StepReport

log = structlog.get_logger()


class LinkCommands:
    """Carries them out between two steps."""

    def __init__(self, engine: Engine, send: Callable[[LinkEvent | StepReport], None]) -> None:
        self._engine = engine
        self._send = send

    def carry_out(self, command: LinkCommandFrame) -> None:
        """Do it, or say why not."""
        try:
            self._carry_out(command)
        except LinkRefusedError as error:
            log.warning("link refused", error=str(error))
            self._send(LinkRefused(command.link, str(error)))

    def _carry_out(self, command: LinkCommandFrame) -> None:
        offload = self._engine.offload
        match command:
            case MakeLink(link, model):
                self._send(LinkMade(link, self._engine.make_link(link, model)))
            case ReceiveLink(link, sizes):
                offload.receive(link, sizes)
                self._send(LinkServed(link, offload.page_bytes))
            case LendPages(link, num_pages):
                pages = offload.lend(link, num_pages)
                self._send(StepReport.of((), self._engine.stats()))  # once told, the agent calls them spare no longer
                self._send(PagesLent(link, pages))
            case TakeBackPages(link, pages):
                offload.take_back(link, pages)
            case GrantPages(link, pages, page_bytes):
                offload.grant(link, pages, page_bytes)
            case WantPages(link, num_pages):
                offload.want_back(link, num_pages)
            case SetRemoteRatio(link, ratio):
                offload.set_ratio(link, ratio)
            case AskLinkTimes(link, model):
                self._send(LinkTimesTold(link, offload.times(link, model)))
            case CloseLink(link):
                offload.close(link)

    def tell_news(self) -> None:
        """Pages that were left, requests that were lost."""
        for news in self._engine.offload.news():
            match news:
                case PagesBack(link, pages):
                    self._send(PagesReturned(link, list(pages)))
                case RemoteLost(link, num_requests):
                    log.warning("requests lost at a receiver", link=str(link), num_requests=num_requests)
                    self._send(RemoteRequestsLost(link, num_requests))
                case LentTaken(link, model):
                    log.warning("link ended: a model needs its pages", link=str(link), model=model)
                    self._send(LinkRefused(link, f"{model!r} was loaded, and needs the pages"))

"""The links of an engine: as a sender, one a model at most; as a receiver, as many as its device serves.

It does what its agent asks for, between two steps, and knows nothing of why. Whatever is wrong with a link is refused
in one line, and the engine goes on without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.links import Linked, LinkName, LinkRefusedError, Links, LinkTimes
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.offload.lent_pages import LentPages
from gpu_node.engine.offload.page_needs import NO_ROOM, LendableRoom, PageNeed, lendable_room
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.memory.link_sizes import LinkSizes


@dataclass(frozen=True, slots=True)
class PagesBack:
    """Pages that a sender uses no more, though they are granted."""

    link: LinkName
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoteLost:
    """A receiver missed a deadline, or refused: so many requests are computed again."""

    link: LinkName
    num_requests: int


@dataclass(frozen=True, slots=True)
class LentTaken:
    """A link that was served has ended: a model that was loaded here has a right to the pages."""

    link: LinkName
    model: str


LinkNews = PagesBack | RemoteLost | LentTaken


@dataclass(slots=True)
class _Sending:
    """The only link of a model."""

    link: LinkName
    scheduler: Scheduler
    block_bytes: int
    num_lost: int
    """That have been told, or were lost by an earlier link."""


class Offloading:
    """Between an agent's commands, an executor's links and the books of both sides."""

    def __init__(self, executor: Executor, pages: PageArena, page_bytes: int, max_num_seqs: int) -> None:
        self._executor = executor
        self._linked = executor if isinstance(executor, Linked) else None  # asked once: a protocol's answer takes long
        self._pages = pages
        self.page_bytes = page_bytes
        """Of this engine, as a receiver."""
        self._max_num_seqs = max_num_seqs
        self._sending: dict[str, _Sending] = {}  # by model
        self._lent: dict[LinkName, LentPages] = {}
        self._taken: list[LentTaken] = []  # not told yet

    # --- both sides ---------------------------------------------------------------------------------------------------

    @property
    def _links(self) -> Links:
        if self._linked is None:
            raise LinkRefusedError(f"no link: the {self._executor.device} executor has none")
        return self._linked.links

    @property
    def num_served(self) -> int:
        """Tasks that the device has done for others."""
        return self._linked.links.num_served if self._linked is not None else 0

    def close(self, link: LinkName) -> None:
        """At once: what lies at the receiver is computed again, pages that were lent are free. Unknown: nothing."""
        for model, sending in list(self._sending.items()):
            if sending.link == link:
                self.leave(model)
        lent = self._lent.pop(link, None)
        if lent is not None:
            self._links.close_link(link)
            lent.close()

    # --- the sender's -------------------------------------------------------------------------------------------------

    def make(self, link: LinkName, model: LoadedModel, scheduler: Scheduler) -> LinkSizes:
        """A link for a model's requests; nothing is granted yet. Raises `LinkRefusedError`."""
        max_blocks = self._max_num_seqs * -(-model.max_model_len // model.block_size)
        sizes = self._links.send(link, model.name, self._max_num_seqs, max_blocks)
        self._sending[model.name] = _Sending(link, scheduler, model.block_bytes, scheduler.residences.num_lost)
        return sizes

    def grant(self, link: LinkName, pages: Collection[int], page_bytes: int) -> None:
        """Pages of the receiver, so large each. Raises `LinkRefusedError` where there is no such link."""
        sending = self._sending_of(link)
        sending.scheduler.residences.grant(pages, page_bytes // sending.block_bytes)

    def want_back(self, link: LinkName, num_pages: int) -> None:
        """The receiver wants so many pages back; they are among the news when nothing lies there any more."""
        self._sending_of(link).scheduler.residences.withdraw(num_pages)

    def set_ratio(self, link: LinkName, ratio: float) -> None:
        """Of the requests that run, so many shall be remote; it is about those that begin from now on."""
        self._sending_of(link).scheduler.residences.ratio = ratio

    def leave(self, model: str) -> None:
        """A model's link ends, if it has one."""
        sending = self._sending.pop(model, None)
        if sending is not None:
            sending.scheduler.residences.close()
            self._links.close_link(sending.link)

    def look(self) -> None:
        """Ahead of a step: which generations are served, and whether those that are served here wait too long."""
        for sending in self._sending.values():
            sending.scheduler.residences.serve(self._links.served_generation(sending.link))
        if self._lent:
            self._links.adapt()

    def times(self, link: LinkName, model: str) -> LinkTimes:
        """What has been measured at this end of a link, beside a loaded model. Raises `LinkRefusedError`."""
        if link not in self._lent:
            self._sending_of(link)
        return self._links.times(link, model)

    def news(self) -> Iterable[LinkNews]:
        """Since the last call."""
        taken, self._taken = self._taken, []
        yield from taken
        for sending in self._sending.values():
            residences = sending.scheduler.residences
            pages = residences.take_returned()
            if pages:
                yield PagesBack(sending.link, tuple(pages))
            if residences.num_lost > sending.num_lost:
                yield RemoteLost(sending.link, residences.num_lost - sending.num_lost)
                sending.num_lost = residences.num_lost

    def _sending_of(self, link: LinkName) -> _Sending:
        for sending in self._sending.values():
            if sending.link == link:
                return sending
        raise LinkRefusedError(f"no link {link}: this engine did not make it, or has closed it")

    # --- the receiver's -----------------------------------------------------------------------------------------------

    def receive(self, link: LinkName, sizes: LinkSizes) -> None:
        """Serve a link that another engine made; nothing is lent yet. Raises `LinkRefusedError`."""
        if link in self._lent:
            raise LinkRefusedError(f"no link {link}: it is served already")
        self._links.receive(link, sizes)
        self._lent[link] = LentPages(self._pages)

    def serve(self) -> bool:
        """While there is no step: whether senders are served that wait for such a call."""
        return bool(self._lent) and self._links.serve()

    def lend(self, link: LinkName, num_pages: int) -> list[int]:
        """So many pages more, or as many as are unused: which. Raises `LinkRefusedError` where it is not served."""
        pages = self._lent_to(link).lend(num_pages)
        self._links.lend(link, pages)
        return pages

    def take_back(self, link: LinkName, pages: Collection[int]) -> None:
        """The sender uses these no more, or shall not. Raises `LinkRefusedError` where it is not served."""
        lent = self._lent_to(link)
        self._links.take_back(link, lent.held(pages))
        lent.take_back(pages)

    def room(self, needs: Iterable[PageNeed]) -> LendableRoom:
        """What could be lent beside these needs of all models that are loaded."""
        if self._linked is None:
            return NO_ROOM
        num_lent = sum(lent.num_lent for lent in self._lent.values())
        return lendable_room(self.page_bytes, self._pages.num_pages, num_lent, needs)

    def take_for(self, model: str) -> bool:
        """For a model that has no room: end the link that has most pages. False where none has any."""
        link = max(self._lent, key=lambda one: self._lent[one].num_lent, default=None)
        if link is None or not self._lent[link].num_lent:
            return False
        self.close(link)
        self._taken.append(LentTaken(link, model))
        return True

    def _lent_to(self, link: LinkName) -> LentPages:
        lent = self._lent.get(link)
        if lent is None:
            raise LinkRefusedError(f"no link {link}: this engine does not serve it")
        return lent

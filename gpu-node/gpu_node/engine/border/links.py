"""What an engine asks of an executor whose attention other engines of the host may use, or which uses theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from shared.messages.memory.link_sizes import LinkSizes


@dataclass(frozen=True, slots=True)
class LinkName:
    """A link by the epochs of its two engines."""

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} to {self.receiver}"


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """What has been measured at one end of a link, in seconds. Sums are since the engine began.

    Of the sender: K of Weaver (ATC'25, §4.2), its steps, and sums over tasks. Of the receiver, N and T.
    """

    local_s: float = 0.0
    """What the sender does itself while a task is away, of late (K)."""
    step_s: float = 0.0
    """From one step with tasks to the next, of late."""
    away_s: float = 0.0
    """Of all tasks, from when they were asked for to when their answer was gathered."""
    waited_s: float = 0.0
    """Of that, what the sender only waited."""
    num_tasks: int = 0
    service_s: float = 0.0
    """Of all tasks that attend, on the receiver (N is the mean)."""
    num_served: int = 0
    operator_s: list[float] = field(default_factory=list)
    """Of each operator of the receiver's model, in all steps (T is the mean)."""
    num_steps: int = 0
    num_parts: list[int] = field(default_factory=list)
    """In which each operator is run, with a poll behind each."""


class LinkRefusedError(RuntimeError):
    """Two engines can share no memory, or not this one; the text says why, in one line. Both go on without."""


class Links(Protocol):
    """The ends of links that an executor has."""

    @property
    def num_served(self) -> int:
        """Tasks that it has done for others."""
        ...

    def send(self, link: LinkName, model: str, max_sequences: int, max_blocks: int) -> LinkSizes:
        """Make a link to a receiver of a model's attention. The model has no other one.

        A step may have so many sequences behind it, with so many blocks together. Raises `LinkRefusedError`.
        """
        ...

    def served_generation(self, link: LinkName) -> int:
        """The generation that a receiver serves; 0 while it serves none."""
        ...

    def receive(self, link: LinkName, sizes: LinkSizes) -> None:
        """Serve a link that a sender made, over pages that are lent to it. Raises `LinkRefusedError`."""
        ...

    def lend(self, link: LinkName, pages: Iterable[int]) -> None:
        """Let the sender of a link that is served name blocks in these pages."""
        ...

    def take_back(self, link: LinkName, pages: Iterable[int]) -> None:
        """Refuse what names blocks in these pages; nothing uses them when this returns."""
        ...

    def adapt(self) -> None:
        """Ahead of a step, while others are served: follow them, and split what their tasks wait for, where that is
        asked for and what is measured has changed."""
        ...

    def serve(self) -> bool:
        """Without a step: do what others wait for. Whether that has to be asked for again soon; a device that looks by
        itself needs no call."""
        ...

    def times(self, link: LinkName, model: str) -> LinkTimes:
        """What has been measured; of a receiver, beside the steps of a loaded model."""
        ...

    def close_link(self, link: LinkName) -> None:
        """Serve it no more; or send no more, behind the steps that were submitted."""
        ...


@runtime_checkable
class Linked(Protocol):
    """An executor that has links."""

    @property
    def links(self) -> Links:
        """All of its ends."""
        ...

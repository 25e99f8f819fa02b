"""Messages about where KV lies: nodes tell the KV manager, gateways ask it, the queue manager is answered."""

from __future__ import annotations

import msgspec

from shared.messages.memory.tiers import TierNews
from shared.messages.message import Message
from shared.messages.requests.requests import Submit

MAX_NAMES_TOLD = 2_048
"""Blocks of one `BlockNews`: 20 kB, and some milliseconds of the KV manager."""


class BlockNews(Message, frozen=True, kw_only=True):
    """Node to KV manager: what has changed of the cached blocks of a model.

    Soft: it may be lost, and then its number is missing, and the KV manager asks for all of it again.
    """

    node: str
    epoch: str
    number: int
    """Of what this epoch tells of blocks, from 1 on."""
    model: str
    """``""`` where the node has none."""
    is_new: bool = False
    """Forget what was told of this model at this node: what follows is all."""
    tiers: list[TierNews] = []


class TellBlocks(Message, frozen=True, kw_only=True):
    """KV manager to node: something was not heard; tell all again, from the first block on."""

    node: str
    epoch: str


class Locate(Message, frozen=True, kw_only=True):
    """Gateway to KV manager, in one step with a `Submit`: at which nodes is the beginning of its prompt?

    Answered to the queue manager, by `Located`. Soft: one that is lost leaves its request to be placed blindly.
    """

    request_id: str
    attempt: int
    model: str
    names: list[int]
    """As in `PromptPrefix`."""

    @classmethod
    def of(cls, submit: Submit) -> Locate | None:
        """What is asked about a request; None where nothing of its prompt is named."""
        if submit.prefix is None:
            return None
        names = submit.prefix.names
        return cls(request_id=submit.request_id, attempt=submit.attempt, model=submit.model, names=names)


class WarmNode(msgspec.Struct, frozen=True):
    """A node that has a beginning of a prompt; the names found there, first to last, by the nearest tier of each."""

    node: str
    num_device: int = 0
    num_host: int = 0
    num_ssd: int = 0

    @property
    def num_names(self) -> int:
        """All that were found."""
        return self.num_device + self.num_host + self.num_ssd

    @property
    def num_near(self) -> int:
        """Those that other nodes can read there: an SSD is read for the node's own requests alone."""
        return self.num_device + self.num_host


class Located(Message, frozen=True, kw_only=True):
    """KV manager to queue manager: the nodes that have something of it, in no order."""

    request_id: str
    attempt: int
    nodes: list[WarmNode] = []

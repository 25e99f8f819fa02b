"""What the agent's core sees, and what it wants done: by `epoch.py` live, by the simulator without Redis."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_node.engine.process.protocol import link_protocol, protocol
from gpu_node.engine.process.protocol.prefix_protocol import PrefixFound
from gpu_node.engine.process.protocol.protocol import (
    Command,
    EngineReady,
    ImageFile,
    ModelFailed,
    ModelLoaded,
    StepReport,
)
from shared.config.engines.engine import ModelSpec
from shared.messages.memory.blocks import BlockNews, TellBlocks
from shared.messages.memory.leases import LeaseAnswer, LeaseOrder
from shared.messages.nodes.nodes import Fence, Heartbeat, Load, Serve
from shared.messages.prefixes.prefix_sources import PrefixSource
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import (
    Abort,
    Attempt,
    Enqueued,
    Evict,
    EvictedRequest,
    FinishedRequest,
    ImageTicket,
    KvOpened,
    ReadAhead,
    Tokens,
    VirtualQueue,
)

# --- events beside messages from the inbox and from the engine ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group entry that this node has taken, with its payload; None when that is gone, or ``unreadable``."""

    entry_id: bytes
    enqueued: Enqueued
    payload: Payload | None
    unreadable: str = ""
    """Why the payload is none of this version."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Answer to `Pull`: fewer entries than were asked for mean that the group is empty for now."""

    group: str
    num_asked: int
    entries: list[GroupEntry]


@dataclass(frozen=True, slots=True)
class Drain:
    """The node is to stop: nothing is pulled any more, and what is here is handed over."""


@dataclass(frozen=True, slots=True)
class ImageHeld:
    """The engine has given the image of an attempt, which waits here for the node that will pull the request."""

    attempt: Attempt
    ticket: ImageTicket | None
    """None where there is no image: it is computed again."""


@dataclass(frozen=True, slots=True)
class ImageBegun:
    """The beginning of the image of an attempt can be read here, while the engine goes on with it."""

    attempt: Attempt
    ticket: ImageTicket


@dataclass(frozen=True, slots=True)
class ImageFetched:
    """Answer to `Resume`."""

    payload: Payload
    file: ImageFile
    """Empty where the image is lost."""
    seconds: float
    """That it took on its way."""


@dataclass(frozen=True, slots=True)
class PrefixFetched:
    """Answer to `FetchPrefix`."""

    payload: Payload
    file: ImageFile
    """Empty where nothing has come: the request is computed."""
    seconds: float
    """That it took on its way."""


@dataclass(frozen=True, slots=True)
class TakeStock:
    """Redis has come back without the end of its log, as far as is known: say what is here."""


@dataclass(frozen=True, slots=True)
class BlocksDue:
    """It is time to tell what has changed of the cached blocks."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The models of the configuration, at the beginning of an epoch and whenever they have changed."""

    models: tuple[ModelSpec, ...]
    is_settled: bool = True
    """Its file stood still as it was read: else it may have been half written."""


@dataclass(frozen=True, slots=True)
class AdaptersDue:
    """It is time to look at adapters that are waited for, and at those that could not be used."""

    now: float
    """Of any clock that does not step."""


@dataclass(frozen=True, slots=True)
class LeasesDue:
    """It is time to look at leases."""

    now: float
    """Of any clock that does not step."""


AgentEvent = (
    Configured
    | AdaptersDue
    | VirtualQueue
    | Abort
    | Evict
    | ReadAhead
    | Load
    | Serve
    | Fence
    | TellBlocks
    | BlocksDue
    | LeaseOrder
    | LeasesDue
    | Taken
    | TakeStock
    | Drain
    | EngineReady
    | ModelLoaded
    | ModelFailed
    | StepReport
    | protocol.TakenOut
    | ImageHeld
    | ImageBegun
    | ImageFetched
    | PrefixFound
    | PrefixFetched
    | protocol.BlocksTold
    | link_protocol.LinkEvent
)
"""All that the core sees."""


# --- actions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pull:
    """Take up to ``num_requests`` entries of a group; answered by `Taken`."""

    group: str
    num_requests: int


@dataclass(frozen=True, slots=True)
class Tell:
    """A command for the engine."""

    command: Command


@dataclass(frozen=True, slots=True)
class Ack:
    """A group entry that is done with."""

    group: str
    entry_id: bytes


@dataclass(frozen=True, slots=True)
class Publish:
    """What has come of a step or an eviction, in one transaction with the entries that it acknowledges."""

    tokens: dict[str, Tokens] = field(default_factory=dict)
    """By gateway."""
    acks: list[Ack] = field(default_factory=list)
    finished: list[FinishedRequest] = field(default_factory=list)
    evicted: list[EvictedRequest] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SayInventory:
    """Tell the queue manager all that is here, behind what was pulled and published before."""

    running: list[Attempt]
    parked: list[Attempt]


@dataclass(frozen=True, slots=True)
class DropImages:
    """No node will fetch the images of these attempts that wait here; unknown ones are ignored."""

    attempts: list[Attempt]


@dataclass(frozen=True, slots=True)
class SayOpened:
    """Tell the queue manager that KV of a request can be read; once: it is a hint."""

    opened: KvOpened


@dataclass(frozen=True, slots=True)
class ReadImage:
    """Read an image that grows at another node, for a `Resume` that will probably come. Nothing is answered."""

    ticket: ImageTicket


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch the image that another node has handed over; answered by `ImageFetched`, while all else goes on."""

    payload: Payload
    ticket: ImageTicket | None
    """None where the entry names none: it is lost."""


@dataclass(frozen=True, slots=True)
class StopFetch:
    """These `Resume` and `FetchPrefix` are not to be answered any more."""

    attempts: list[Attempt]


@dataclass(frozen=True, slots=True)
class DiscardImage:
    """An image that was fetched is of no use."""

    file: ImageFile


@dataclass(frozen=True, slots=True)
class SeekPrefix:
    """Before a request begins: see what is cached here of its prompt, and fetch what its source has more."""

    payload: Payload
    source: PrefixSource


@dataclass(frozen=True, slots=True)
class FetchPrefix:
    """Ask a request's source for its prompt behind ``from_token``; answered by `PrefixFetched`, as `Resume` is."""

    payload: Payload
    source: PrefixSource
    from_token: int


StartAttempt = Tell | Resume | SeekPrefix
"""What lets a request begin."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Tell the scheduler and the KV manager how this node is."""

    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class SayBlocks:
    """Tell the KV manager what has changed of the cached blocks; once, whether or not it is heard."""

    news: BlockNews


@dataclass(frozen=True, slots=True)
class SayLease:
    """Tell the KV manager what has come of an order about a lease; once: what it does not hear, it ends."""

    answer: LeaseAnswer


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """This epoch is over: drop everything and begin another one."""


ImageAction = Resume | ReadImage | FetchPrefix | StopFetch | DiscardImage | DropImages
"""About images that go to other nodes, or come."""

AgentAction = Pull | Tell | ImageAction | Publish | SayInventory | Beat | SayBlocks | SayLease | SayOpened | NewEpoch

"""What node agent and engine process, both of one version, say to each other; `framing` makes bytes of it."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.frames import NO_IMAGE as NO_IMAGE
from gpu_node.engine.process.protocol.frames import Frame
from gpu_node.engine.process.protocol.frames import ImageFile as ImageFile
from gpu_node.engine.process.protocol.growth_protocol import GrowthEvent, OpenImages
from gpu_node.engine.process.protocol.link_protocol import LinkCommand, LinkEvent
from gpu_node.engine.process.protocol.prefix_protocol import PrefixCommand, PrefixEvent
from gpu_node.engine.requests.chunk import OutputChunk as EngineChunk
from gpu_node.engine.requests.image import Kept
from shared.config.engines.engine import ModelSpec
from shared.messages.memory.tiers import TierNews
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk

# --- agent -> engine ------------------------------------------------------------------------------------------------


class LoadModel(Frame, frozen=True):
    """Load the model configured under this name. Answered by `ModelLoaded` or `ModelFailed`.

    Refused while all models that could go for it have sequences: drain, abort or `Reset` first. One that is loaded with
    other adapters than these is loaded in place of itself: its requests go on, with the KV that they have.
    """

    model: str
    spec: ModelSpec | None = None
    """What the name stands for; None: what it stood for when the engine began. Only the agent reads the configuration
    again: two readers would find two files where it changes between them."""


class RunAttempt(Frame, frozen=True):
    """Run one attempt of a request. A newer attempt replaces an older one; the same attempt twice runs once.

    An attempt that was evicted here goes on where it was, without computing anything again, while its KV is kept.
    """

    payload: Payload
    image: ImageFile | None = None
    """Its state and KV as another engine handed them over (`Image`); None where none did. What cannot be used, or is
    empty since it was lost on the way, ends the attempt (`gpu_node.engine.requests.chunk.LOST`). Answered by
    `ImageOpened`, before anything else that comes of it."""
    prefix: ImageFile | None = None
    """KV of the prompt's beginning from another engine's cache (`PrefixCopied`). It goes to this one's cache before the
    request is queued; where it cannot, the request is computed. Answered by `ImageOpened`, then `PrefixTaken`."""


class TakeOut(Frame, frozen=True):
    """Take these requests out, between two steps, and keep their state and KV in host memory as far as it has room.

    Answered by `TakenOut`, behind the `StepReport` that brings their last tokens. Unknown ids are left out of the
    answer: they have ended meanwhile.
    """

    request_ids: list[str]


class HandOverImages(Frame, frozen=True):
    """Answer an `Image` for each of these requests that were evicted here, and forget them. Unknown ids: nothing."""

    request_ids: list[str]


class ReleaseImages(Frame, frozen=True):
    """These images (`Image.number`) are gone from here: their memory is free."""

    numbers: list[int]


class AbortRequests(Frame, frozen=True):
    """Forget these requests and free what they hold, or what is kept of them.

    Unknown ids are ignored; no chunk is sent for them.
    """

    request_ids: list[str]


class AskBlocks(Frame, frozen=True):
    """What has changed of the cached blocks? Answered by `BlocksTold`."""

    is_again: bool = False
    """All of it, not only what has changed."""


class Reset(Frame, frozen=True):
    """Drop every sequence, the evicted ones too. The model stays loaded."""


class Shutdown(Frame, frozen=True):
    """Exit with status 0 at once; what runs is lost. The end of the stream means the same."""


Command = (
    LoadModel
    | RunAttempt
    | TakeOut
    | OpenImages
    | HandOverImages
    | ReleaseImages
    | AbortRequests
    | PrefixCommand
    | AskBlocks
    | LinkCommand
    | Reset
    | Shutdown
)


# --- engine -> agent ------------------------------------------------------------------------------------------------


class EngineReady(Frame, frozen=True):
    """First event: the process is up and reads commands."""

    device: str
    """Its kind, as it calls itself: what is learnt of one holds for all of a kind."""
    engine: str = "treadle"
    """Or ``vllm``."""
    lacks: list[str] = []
    """What requests may ask for that it refuses, in words."""
    has_fixed_adapters: bool = False
    """A model that is loaded keeps the adapters that it was loaded with."""


class EngineRefused(Frame, frozen=True):
    """In place of `EngineReady`: the process cannot run here as it is configured, and ends once it is told to."""

    reason: str
    """For the operator: what is in the way, and what to do."""


class ModelLoaded(Frame, frozen=True):
    """The model is ready and the current one; the cached prefixes of a model that had to go for it are gone."""

    model: str
    num_blocks: int
    block_size: int
    block_bytes: int
    max_model_len: int
    load_s: float
    """0.0 when it was loaded already."""
    source: str = "disk"
    """Where its weights were: ``device``, ``host`` or ``disk``."""
    tiers: dict[str, str] = {}
    """Where the weights of every model are now that are on the device or in host memory."""
    kv_format: str = ""
    step_tokens: int = 0
    """Both as in `ModelRate`."""
    adapters: tuple[str, ...] = ()
    """That it has now."""
    broken_adapters: dict[str, str] = {}
    """Of those that were asked for, by name: why it is served without them."""


class ModelFailed(Frame, frozen=True):
    """The model could not be loaded; what was loaded before still is."""

    model: str
    error: str
    is_unknown: bool = False
    """The configuration has no such model, as far as it is here yet."""


class StepReport(Frame, frozen=True):
    """New tokens and ends, one chunk a choice; no chunks when only the stats have changed."""

    chunks: list[Chunk]
    stats: EngineStats

    @classmethod
    def of(cls, chunks: Iterable[EngineChunk], stats: EngineStats) -> StepReport:
        """With the messages that say what the engine says."""
        return cls([Chunk(*chunk) for chunk in chunks], stats)


class TakenOut(Frame, frozen=True):
    """Answer to `TakeOut`."""

    requests: list[Kept]
    stats: EngineStats


class Image(Frame, frozen=True):
    """Answer to `HandOverImages`: state and KV of an attempt, for another engine with the same model.

    It is whole, and the engine keeps it open and counts its memory until it is told to release it (`ReleaseImages`).
    One that has grown before (`ImageGrown`) has the same number and the same beginning.
    """

    request_id: str
    attempt: int
    number: int
    file: ImageFile
    """Empty where there was no memory for it, and nothing is to be released: it has to be computed again elsewhere."""


class ImageOpened(Frame, frozen=True):
    """Answer to a `RunAttempt` with an image: the engine has the file open, or needs it no more."""

    file: ImageFile


class BlocksTold(Frame, frozen=True):
    """Answer to `AskBlocks`: a part of it, as `BlockChanges` says."""

    model: str
    is_new: bool
    tiers: list[TierNews]
    has_more: bool
    """To be asked for."""


EngineEvent = (
    EngineReady
    | ModelLoaded
    | ModelFailed
    | StepReport
    | TakenOut
    | Image
    | GrowthEvent
    | ImageOpened
    | PrefixEvent
    | BlocksTold
    | LinkEvent
)

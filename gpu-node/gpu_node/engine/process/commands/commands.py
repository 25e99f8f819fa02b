"""What an engine does about the commands of its agent, and what the agent hears of it; the same live and simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.memory.block_log import BlockChanges
from gpu_node.engine.process.commands.growth_commands import GrowthCommands
from gpu_node.engine.process.commands.prefix_commands import PrefixCommands
from gpu_node.engine.process.commands.reports import reports
from gpu_node.engine.process.protocol.growth_protocol import OpenImages
from gpu_node.engine.process.protocol.link_protocol import LinkCommandFrame
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, FindPrefix
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    AskBlocks,
    BlocksTold,
    Command,
    EngineEvent,
    HandOverImages,
    Image,
    ImageFile,
    LoadModel,
    ModelLoaded,
    ReleaseImages,
    Reset,
    RunAttempt,
    Shutdown,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import BlockFormat, Growth, HandedOver, Kept, SerialisedImage
from shared.messages.memory.blocks import MAX_NAMES_TOLD
from shared.messages.requests.payload import Payload


class CommandedEngine(Protocol):
    """As `gpu_node.engine.engine.Engine`."""

    @property
    def tiers(self) -> Mapping[str, str]:
        """Where the weights of models are, ``device`` or ``host``; those of others are on disk."""
        ...

    def add(self, payload: Payload, image: SerialisedImage | None = None) -> list[OutputChunk]:
        """Queue a request, or let it go on from what is kept of it or from an image; what ends at once is told."""
        ...

    def evict(self, request_ids: Iterable[str]) -> tuple[list[OutputChunk], list[Kept]]:
        """Take requests out and keep their KV as far as host memory has room; what came before, and what is kept."""
        ...

    def hand_over(self, request_ids: Iterable[str]) -> list[HandedOver]:
        """Give away what is kept of evicted requests."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """The memory of images that were handed over is free; unknown ones are ignored."""
        ...

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests; unknown ones are ignored."""
        ...

    def reset(self) -> None:
        """Forget all requests."""
        ...

    def tell_blocks_again(self) -> None:
        """Tell all that is cached anew."""
        ...

    def block_changes(self, most: int) -> BlockChanges:
        """At most so many changes of cached blocks that have not been told."""
        ...

    def stats(self) -> EngineStats:
        """The state between two steps."""
        ...


NOTHING_BROKEN: Mapping[str, str] = MappingProxyType({})

ImageEvent = Callable[[HandedOver, ImageFile], EngineEvent]


def told_of(image: HandedOver, file: ImageFile) -> Image:
    """What the agent hears of a request that was handed over."""
    return Image(image.request_id, image.attempt, image.number, file)


class ImagePort(Protocol):
    """How images of requests leave the engine's process, and come."""

    def give(self, images: Iterable[HandedOver], told: ImageEvent) -> None:
        """Have the agent told of each, at once or later, with what ``told`` makes of it and its file."""
        ...

    def make(self, number: int, num_bytes: int) -> memoryview:
        """Memory for an image that is read while it grows; `give` goes on with it. `OSError` where there is none."""
        ...

    def growing_file(self, growth: Growth) -> ImageFile:
        """Where such an image is, and how large; `NO_IMAGE` where there is nothing to read."""
        ...

    def take(self, file: ImageFile) -> SerialisedImage:
        """What another engine has handed over; empty where it is lost."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """The agent has no use for these any more."""
        ...


class Commands:
    """Carries commands out between two steps, in their order."""

    def __init__(self, engine: CommandedEngine, send: Callable[[EngineEvent], None], images: ImagePort) -> None:
        self._engine = engine
        self._send = send
        self._images = images
        self._prefixes = PrefixCommands(engine, send, images)
        self._growth = GrowthCommands(engine, send, images)
        self._chunks: list[OutputChunk] = []

    def carry_out(self, commands: deque[Command]) -> LoadModel | LinkCommandFrame | Shutdown | None:
        """Take commands from the left, up to one that is the process's own business: that one is returned."""
        while commands:
            match commands.popleft():
                case LoadModel() | Shutdown() as own:
                    return own
                case LinkCommandFrame() as about_links:
                    return about_links
                case RunAttempt() as run:
                    self._run(run)
                case AbortRequests(request_ids):
                    self._engine.abort(request_ids)
                case Reset():
                    self._engine.reset()
                case FindPrefix() | CopyPrefix() as about_prefixes:
                    self._prefixes.carry_out(about_prefixes)
                case AskBlocks(is_again):
                    self._tell_blocks(is_again=is_again)
                case TakeOut(request_ids):
                    last, kept = self._engine.evict(request_ids)
                    self._chunks += last
                    self.report()
                    self._send(TakenOut(kept, self._engine.stats()))
                case OpenImages() | HandOverImages() | ReleaseImages() as about_images:
                    self._about_images(about_images)
        return None

    def _about_images(self, command: OpenImages | HandOverImages | ReleaseImages) -> None:
        match command:
            case OpenImages(request_ids):
                self._growth.open(request_ids)
            case HandOverImages(request_ids):
                self._images.give(self._engine.hand_over(request_ids), told_of)
            case ReleaseImages(numbers):
                self._images.release(numbers)
                self._engine.release(numbers)

    def _run(self, run: RunAttempt) -> None:
        if run.prefix is not None:
            self._prefixes.take_in(run.payload, run.prefix)
        image = self._images.take(run.image) if run.image is not None else None
        self._chunks += self.add(run.payload, image)

    def _tell_blocks(self, *, is_again: bool) -> None:
        if is_again:
            self._engine.tell_blocks_again()
        changes = self._engine.block_changes(MAX_NAMES_TOLD)
        self._send(BlocksTold(changes.model, changes.is_new, list(changes.tiers), changes.has_more))

    def report(self) -> None:
        """Tell what has ended without a step, and what commands have changed."""
        chunks, self._chunks = self._chunks, []
        for report in reports(chunks, self._engine.stats()):
            self._send(report)
        self.tell_growth()

    def tell_growth(self) -> None:
        """Behind a step: what can be read of images that grow."""
        self._growth.tell()

    def loaded(
        self, model: LoadedModel, load_s: float, source: str, broken_adapters: Mapping[str, str] = NOTHING_BROKEN
    ) -> None:
        """Tell that a model has become the current one, from where its weights were, in so many seconds."""
        self._send(
            ModelLoaded(
                model=model.name,
                num_blocks=model.num_blocks,
                block_size=model.block_size,
                block_bytes=model.block_bytes,
                max_model_len=model.max_model_len,
                load_s=load_s,
                source=source,
                tiers=dict(self._engine.tiers),
                kv_format=BlockFormat.of(model).name,
                step_tokens=model.step_tokens,
                adapters=model.adapters,
                broken_adapters=dict(broken_adapters),
            )
        )

    def add(self, payload: Payload, image: SerialisedImage | None) -> list[OutputChunk]:
        """Queue a request, or let it go on; what ends at once."""
        return self._engine.add(payload, image)

"""Images of requests at a simulated node: what its engine hands over, and what comes from others over its network.

As live (`gpu_node.agent.images`), but that nothing is copied: all that is told of an image is its size, and when it is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpu_node.agent.decisions.actions import (
    DiscardImage,
    DropImages,
    ImageAction,
    ImageBegun,
    ImageFetched,
    ImageHeld,
    PrefixFetched,
    ReadImage,
    Resume,
    StopFetch,
)
from gpu_node.agent.decisions.evictions import KV_IMAGE_TTL_S, MAX_AHEAD
from gpu_node.engine.process.protocol.growth_protocol import ImageGrown
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Command, EngineEvent, Image, ImageFile, ReleaseImages
from gpu_node.engine.requests.image import Growth, HandedOver, SerialisedImage
from services.simulator.cluster.memory_bus import GrowingImage, MemoryBus, StoredImage
from shared.messages.requests.requests import Attempt, ImageTicket

LATENCY_S = 0.001  # of a connection


@dataclass(frozen=True, slots=True)
class NodeHooks:
    """What an epoch of a node does for its images, as long as it lives."""

    send: Callable[[EngineEvent], None]
    """Says something for the engine."""
    tell: Callable[[Command], None]
    """Tells the engine."""
    feed: Callable[[ImageFetched | PrefixFetched], None]
    """Tells the agent."""
    at: Callable[[float, Callable[[], None]], None]
    """Runs something at a time."""


class NodeImages:
    """Of one epoch. As `gpu_node.engine.process.commands.commands.ImagePort`."""

    def __init__(self, bus: MemoryBus, node: str, epoch: str, hooks: NodeHooks, network_bytes_per_s: float) -> None:
        """``network_bytes_per_s``: from other nodes to this one."""
        self._network_bytes_per_s = network_bytes_per_s
        self._bus = bus
        self._node = node
        self._epoch = epoch
        self._hooks = hooks
        self._given: dict[int, bytes] = {}
        self._come: dict[str, SerialisedImage] = {}
        self._fetching: dict[Attempt, float] = {}
        self._ahead: dict[str, int] = {}
        """By address, bytes that have been asked for of images that grow."""
        self._free_at_s = 0.0

    # --- the engine's end -----------------------------------------------------------------------------------------

    def give(self, images: Iterable[HandedOver], told: Callable[[HandedOver, ImageFile], EngineEvent]) -> None:
        """Tell of each at once."""
        for image in images:
            self._given[image.number] = image.data
            file = ImageFile(str(image.number), image.kv_bytes)
            self._hooks.send(told(image, file))

    def make(self, number: int, num_bytes: int) -> memoryview:
        """Blocks have no content."""
        del number, num_bytes
        return memoryview(b"")

    def growing_file(self, growth: Growth) -> ImageFile:
        """By its number, as large as if they had."""
        return ImageFile(str(growth.number), growth.most_bytes)

    def release(self, numbers: Iterable[int]) -> None:
        """They are there, or of no use; unknown ones are ignored."""
        for number in numbers:
            self._given.pop(number, None)

    def take(self, file: ImageFile) -> SerialisedImage:
        """The image that the engine is told to go on from; empty where it is lost."""
        return self._come.pop(file.path, b"")

    # --- the agent's ----------------------------------------------------------------------------------------------

    def hold(self, image: Image, hold_s: float = KV_IMAGE_TTL_S) -> ImageHeld:
        """The engine has handed a request over, or copied something for another node."""
        attempt, address = Attempt(image.request_id, image.attempt), self._address(image.number)

        def release() -> None:
            self._hooks.tell(ReleaseImages([image.number]))

        growing = self._bus.growing.get(address)
        if growing is not None:
            growing.num_bytes = image.file.num_bytes
            growing.tell()
        self._bus.put_image(address, StoredImage(self._epoch, attempt, self._given[image.number], release), hold_s)
        return ImageHeld(attempt, ImageTicket(self._node, address, "", image.file.num_bytes))

    def _address(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def grow(self, event: ImageGrown) -> ImageBegun | None:
        """The engine has more of an image; the first time, with its ticket."""
        attempt, address = Attempt(event.request_id, event.attempt), self._address(event.number)
        growing = self._bus.growing.get(address)
        is_new = growing is None
        if growing is None:

            def release() -> None:
                self._hooks.tell(ReleaseImages([event.number]))

            growing = self._bus.growing[address] = GrowingImage(self._epoch, attempt, release)
        growing.num_bytes = event.num_bytes
        growing.tell()
        ticket = ImageTicket(self._node, address, "", event.file.num_bytes)
        return ImageBegun(attempt, ticket) if is_new else None

    def end(self, number: int) -> None:
        """Nothing more comes of one that grew."""
        self._bus.end_growth(self._address(number))

    def do(self, action: ImageAction) -> None:
        """As the agent's core wants it."""
        match action:
            case ReadImage(ticket):
                if ticket.url not in self._ahead and len(self._ahead) < MAX_AHEAD:
                    self._ahead[ticket.url] = 0
                    self._read_more(ticket.url)
            case Resume():
                self._fetch(action)
            case StopFetch(attempts):
                for attempt in attempts:
                    self._fetching.pop(attempt, None)
            case DiscardImage(file):
                self.take(file)
            case DropImages(attempts):
                self._bus.drop_images(self._epoch, attempts)

    def _fetch(self, resume: Resume) -> None:
        """It comes over the network, one behind the other, while the engine goes on."""
        ticket = resume.ticket
        num_bytes = ticket.num_bytes if ticket is not None else 0
        begun_bytes = self._ahead.pop(ticket.url, 0) if ticket is not None else 0
        due_s, took_s = self.arrival(num_bytes - begun_bytes)
        took_s += begun_bytes / self._network_bytes_per_s
        self._fetching[Attempt(resume.payload.request_id, resume.payload.attempt)] = due_s
        self._hooks.at(due_s, lambda: self._fetched(resume, due_s, took_s))

    def _read_more(self, address: str) -> None:
        """What can be read now comes over the network; then what has grown meanwhile, until it is fetched, or gone."""
        asked_bytes, growing = self._ahead.get(address), self._bus.growing.get(address)
        if asked_bytes is None:
            return
        if growing is None:
            del self._ahead[address]
        elif growing.num_bytes <= asked_bytes:
            growing.waiting.append(lambda: self._read_more(address))
        else:
            self._ahead[address] = growing.num_bytes
            due_s, _ = self.arrival(growing.num_bytes - asked_bytes)
            self._hooks.at(due_s, lambda: self._read_more(address))

    def arrival(self, num_bytes: int) -> tuple[float, float]:
        """When so many bytes are there that begin to come now, and how long they are on their way."""
        took_s = LATENCY_S + num_bytes / self._network_bytes_per_s
        self._free_at_s = max(self._bus.now, self._free_at_s) + took_s
        return self._free_at_s, took_s

    def put(self, ticket: ImageTicket, data: SerialisedImage) -> ImageFile:
        """What has come with a ticket, for the engine."""
        file = ImageFile(ticket.url, ticket.num_bytes)
        self._come[file.path] = data
        return file

    def _fetched(self, resume: Resume, due_s: float, took_s: float) -> None:
        attempt, ticket = Attempt(resume.payload.request_id, resume.payload.attempt), resume.ticket
        if self._fetching.get(attempt) != due_s:
            return  # no request waits for it any more
        del self._fetching[attempt]
        file, data = NO_IMAGE, self._bus.take_image(ticket.url) if ticket is not None else b""
        if ticket is not None and data:
            file = self.put(ticket, data)
        self._hooks.feed(ImageFetched(resume.payload, file, took_s))

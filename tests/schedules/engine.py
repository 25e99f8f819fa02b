"""An engine without a device: tokens are what `orders.drawn` says, steps take time, what it is told it obeys."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.growth_protocol import ImageEnded, ImageGrown, OpenImages
from gpu_node.engine.process.protocol.prefix_protocol import (
    CopyPrefix,
    FindPrefix,
    PrefixCopied,
    PrefixFound,
    PrefixTaken,
)
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    AskBlocks,
    Command,
    EngineEvent,
    HandOverImages,
    Image,
    ImageFile,
    LoadModel,
    ModelLoaded,
    ReleaseImages,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import LOST
from gpu_node.engine.requests.image import Kept
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.schedules.agenda import Signal, sleep, wait
from tests.schedules.cached import BLOCK_SIZE, CachedPrefixes
from tests.schedules.ledger import BrokenPromiseError
from tests.schedules.orders import VOCAB_SIZE, Order, drawn
from tests.schedules.process import Process

NUM_BLOCKS = 64
MAX_UNTOLD = 4  # events, beyond which it waits for the agent (live there are more, and steps are as much shorter)
COST = StepCost(step_s=0.02, token_s=0.0005, context_token_s=1e-6)


@dataclass(slots=True)
class Sequence:
    """One attempt in the engine."""

    payload: Payload
    lengths: list[int]
    """Tokens of each choice so far."""
    ended: list[bool]
    is_right: bool = True
    """What its prompt begins with in the cache is what computing would have made."""

    @property
    def num_tokens(self) -> int:
        """Whose keys and values there are; none before the first is drawn."""
        num_drawn = sum(self.lengths)
        return len(self.payload.prompt_token_ids) + num_drawn if num_drawn else 0


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast it is, and what it has room for."""

    max_num_seqs: int
    max_parked: int
    step_s: float
    max_step_tokens: int
    load_s: float


@dataclass(slots=True)
class Engine:
    """One life. It computes between commands, and tells the agent after each step."""

    host: Process
    speed: Speed
    orders: Mapping[str, Order]
    tell: Callable[[EngineEvent], None]
    num_untold: Callable[[], int]
    """Events that the agent has not taken in."""
    kv_format: str = ""
    model: str = ""
    sequences: dict[str, Sequence] = field(default_factory=dict)
    """In the order in which they came; the first ``max_num_seqs`` of them run."""
    parked: dict[str, Sequence] = field(default_factory=dict)
    commands: deque[Command] = field(default_factory=deque)
    num_received: int = 0
    num_images: int = 0
    cache: CachedPrefixes | None = None
    """Of prompts; None where none begin alike."""
    lent: set[int] = field(default_factory=set)
    """Copies of it that wait to be fetched."""
    block_bytes: int = BLOCK_SIZE
    step_tokens: int = 0
    kv_bytes_per_s: float = 0.0
    opened: dict[str, int] = field(default_factory=dict)
    """Numbers of images that are read while their prompts are computed, by request."""
    _news: Signal = field(default_factory=Signal)
    _seen_models: dict[str, str] = field(default_factory=dict)

    def send(self, command: Command) -> None:
        """Something that is to be done between two steps."""
        self.commands.append(command)
        self._news.notify()

    async def run(self) -> None:
        """Steps and commands, for ever."""
        while True:
            has_news = bool(self.commands)
            while self.commands:
                await self._do(self.commands.popleft())
            if has_news:
                self.tell(StepReport([], self.stats()))
            self._end_images()
            if not self.sequences:
                await wait(self._news)
                continue
            if self.num_untold() >= MAX_UNTOLD:
                await sleep(self.speed.step_s)
                continue
            await sleep(self.speed.step_s * (0.5 + self.host.chance.random()))
            chunks = self._step()
            self.tell(StepReport(chunks, self.stats()))

    def stats(self) -> EngineStats:
        """As it stands between two steps."""
        num_running = min(len(self.sequences), self.speed.max_num_seqs)
        num_waiting = len(self.sequences) - num_running
        return EngineStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_free_blocks=NUM_BLOCKS,
            num_admittable=max(0, self.speed.max_num_seqs - len(self.sequences)) if self.model else 0,
            step_s=self.speed.step_s,
            num_received=self.num_received,
            kv_bytes_per_s=self.kv_bytes_per_s,
            cost=COST if self.model else None,
        )

    async def _do(self, command: Command) -> None:
        match command:
            case LoadModel(model):
                await self._load(model)
            case RunAttempt(payload, image, prefix):
                if prefix is not None:
                    self._take_in(payload, prefix)
                self._add(payload, image)
            case TakeOut(request_ids):
                self._evict(request_ids)
            case OpenImages() | HandOverImages():
                self._about_images(command)
            case ReleaseImages(numbers):
                self.lent -= set(numbers)
            case FindPrefix() | CopyPrefix() | AskBlocks():
                self._asked(command)
            case AbortRequests(request_ids):
                for request_id in request_ids:
                    self.sequences.pop(request_id, None)
                    self.parked.pop(request_id, None)
            case _:
                raise AssertionError(f"{command} is not for this engine")

    def _about_images(self, command: OpenImages | HandOverImages) -> None:
        if isinstance(command, OpenImages):
            return self._open(command.request_ids)
        for request_id in command.request_ids:
            parked = self.parked.pop(request_id, None)
            if parked is not None:
                number = self.opened.pop(request_id, 0) or self._number()
                attempt, text = parked.payload.attempt, encoded(parked, self.kv_format)
                self.tell(Image(request_id, attempt, number, ImageFile(text, len(text))))
        return None

    def _number(self) -> int:
        self.num_images += 1
        return self.num_images

    def _open(self, request_ids: list[str]) -> None:
        """Of each prompt that is not computed yet, a part is there at once."""
        for request_id in request_ids:
            sequence = self.sequences.get(request_id)
            if sequence is not None and not sequence.num_tokens:
                number = self.opened[request_id] = self._number()
                file = ImageFile(f"growing {number}", 2)
                self.tell(ImageGrown(request_id, sequence.payload.attempt, number, file, 1))

    def _end_images(self) -> None:
        """Who has ended, or was lost, leaves none."""
        for request_id in self.opened.keys() - self.sequences.keys() - self.parked.keys():
            self.tell(ImageEnded(self.opened.pop(request_id)))

    async def _load(self, model: str) -> None:
        if self.sequences and model != self.model:
            raise BrokenPromiseError(f"{self.host.name} is told to load {model} while it runs {list(self.sequences)}")
        source = self._seen_models.get(model, "disk")
        load_s = {"disk": self.speed.load_s, "host": self.speed.load_s / 4, "device": 0.0}[source]
        await sleep(load_s)
        self._seen_models.update(dict.fromkeys(self._seen_models, "host") | {model: "device"})
        self.model = model
        if self.cache is not None:
            self.cache.load(model)
        self.tell(
            ModelLoaded(
                model=model,
                num_blocks=NUM_BLOCKS,
                block_size=BLOCK_SIZE,
                block_bytes=self.block_bytes,
                max_model_len=NUM_BLOCKS * BLOCK_SIZE,
                load_s=load_s,
                source=source,
                tiers=dict(self._seen_models),
                kv_format=self.kv_format,
                step_tokens=self.step_tokens,
            )
        )

    def _add(self, payload: Payload, image: ImageFile | None) -> None:
        self.num_received += 1
        request_id = payload.request_id
        if payload.model != self.model:
            self.parked.pop(request_id, None)
            error = f"model {payload.model!r} is not loaded here; loaded: {self.model!r}"
            chunk = Chunk(request_id, payload.attempt, 0, [], finish_reason="error", error=error, is_last=True)
            return self.tell(StepReport([chunk], self.stats()))
        present, parked = self.sequences.get(request_id), self.parked.get(request_id)
        if present is not None and present.payload.attempt >= payload.attempt:
            return None
        if parked is not None and parked.payload.attempt > payload.attempt:
            return None
        self.sequences.pop(request_id, None)
        self.parked.pop(request_id, None)
        if parked is None or parked.payload.attempt != payload.attempt:
            parked = self._begun(payload) if image is None else decoded(payload, image.path, self.kv_format)
            if parked is None:
                chunk = Chunk(request_id, payload.attempt, 0, [], LOST, is_last=True)
                return self.tell(StepReport([chunk], self.stats()))
        self.sequences[request_id] = parked
        return None

    def _begun(self, payload: Payload) -> Sequence:
        """Go on from what the client has, which must be what was drawn."""
        outputs = payload.outputs
        for choice, output in enumerate(outputs):
            right = [drawn(payload.sampling.seed, choice, place) for place in range(len(output.token_ids))]
            if output.token_ids != right:
                raise BrokenPromiseError(
                    f"{payload.request_id}: attempt {payload.attempt} goes on from {output.token_ids}"
                )
        num_choices = payload.sampling.num_choices
        lengths = [len(output.token_ids) for output in outputs] or [0] * num_choices
        ended = [bool(output.finish_reason) for output in outputs] or [False] * num_choices
        is_right = self.cache is None or self.cache.is_right(payload.prompt_token_ids)
        return Sequence(payload, lengths, ended, is_right)

    def _asked(self, command: FindPrefix | CopyPrefix | AskBlocks) -> None:
        """About what is cached."""
        cache = self.cache
        assert cache is not None, "nobody asks an engine that caches nothing"
        match command:
            case FindPrefix(request_id, attempt, model, _, token_ids):
                on_device, near = cache.found(token_ids) if model == self.model else (0, 0)
                self.tell(PrefixFound(request_id, attempt, on_device, near))
            case CopyPrefix(number, ask):
                file = cache.copy(ask)
                if file.num_bytes:
                    self.num_images += 1
                    self.lent.add(self.num_images)
                self.tell(PrefixCopied(number, self.num_images, file))
            case AskBlocks(is_again):
                self.tell(cache.changes(is_again=is_again))

    def _take_in(self, payload: Payload, prefix: ImageFile) -> None:
        assert self.cache is not None, "nothing is fetched for it"
        num_tokens = self.cache.take_in(payload, prefix)
        self.tell(PrefixTaken(num_tokens or 0, is_refused=num_tokens is None))

    def _evict(self, request_ids: list[str]) -> None:
        kept = []
        for request_id in dict.fromkeys(request_ids):
            sequence = self.sequences.pop(request_id, None)
            if sequence is not None and len(self.parked) < self.speed.max_parked and sequence.num_tokens:
                self.parked[request_id] = sequence
            parked = self.parked.get(request_id)
            if sequence is not None or parked is not None:
                kept.append(Kept(request_id, parked.num_tokens if parked is not None else 0))
        self.tell(StepReport([], self.stats()))
        self.tell(TakenOut(kept, self.stats()))

    def _step(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        if self.cache is not None:
            self.cache.make_room(self.host.chance)
        for sequence in list(self.sequences.values())[: self.speed.max_num_seqs]:
            if self.cache is not None and not sequence.num_tokens:
                self.cache.compute(sequence.payload.prompt_token_ids)
            chunks += self._advance(sequence)
            if all(sequence.ended):
                del self.sequences[sequence.payload.request_id]
        return chunks

    def _advance(self, sequence: Sequence) -> list[Chunk]:
        payload, chunks = sequence.payload, []
        order = self.orders[payload.request_id]
        num_drawn = order.num_drawn()
        for choice, begin in enumerate(sequence.lengths):
            if sequence.ended[choice]:
                continue
            end = min(begin + self.host.chance.randint(1, self.speed.max_step_tokens), num_drawn)
            sequence.lengths[choice] = end
            sequence.ended[choice] = end == num_drawn
            tokens = [drawn(payload.sampling.seed, choice, place) for place in range(begin, end)]
            if not sequence.is_right:
                tokens = [VOCAB_SIZE + token for token in tokens]  # what comes of another text's KV
            reason = order.end_by_node if end == num_drawn else ""
            chunks.append(
                Chunk(
                    payload.request_id,
                    payload.attempt,
                    begin,
                    tokens,
                    finish_reason=reason,
                    choice=choice,
                    is_last=all(sequence.ended),
                )
            )
        return chunks


def encoded(sequence: Sequence, kv_format: str) -> str:
    """Where a request stands, for another engine: it is the name of the file, which has nothing in it."""
    return repr((kv_format, sequence.payload.attempt, sequence.lengths, sequence.ended))


def decoded(payload: Payload, image: str, kv_format: str) -> Sequence | None:
    """What an image says of this attempt; None where it is of another, or of another format, or there is none."""
    if not image:
        return None
    *whose, lengths, ended = ast.literal_eval(image)
    return Sequence(payload, lengths, ended) if whose == [kv_format, payload.attempt] else None

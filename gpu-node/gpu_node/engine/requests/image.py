"""What is kept of a request that was taken out: all it needs to go on, without computing anything again.

An image is the request's state, in integers and floats, and the content of its blocks, each of them once however many
sequences share it (eviction as QLM has it, SoCC'24, §5: KV moves to host memory and the request goes on from there).
It outlives the model on the device, and serialised it goes to another engine that cuts the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.beams import Hypothesis
from shared.messages.requests.payload import Payload
from shared.messages.requests.token_logprob import TokenLogprob

NAME_BYTES = 4

SerialisedImage = bytes | memoryview
"""As `gpu_node.engine.evictions.image_codec` writes it; empty where an image was lost on its way."""


class ImageError(ValueError):
    """An image that this engine cannot use; the text says why."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Which model's blocks, and how they are cut: content means something only where all of this is equal."""

    model: str
    block_size: int
    """Tokens a block."""
    block_bytes: int
    kv_layout: str
    """As in `LoadedModel`; empty where blocks have no content."""

    @classmethod
    def of(cls, model: LoadedModel, adapter: str = "") -> BlockFormat:
        """That of a loaded model, or of one of its adapters."""
        return cls(model.name, model.block_size, model.block_bytes, model.layout_of(adapter))

    @property
    def name(self) -> str:
        """Short, and equal where formats of one model are; empty where blocks have no content."""
        return self.cut if self.kv_layout else ""

    @property
    def cut(self) -> str:
        """Likewise, also of blocks without content: what simulated nodes call it."""
        cut = f"{self.block_size} {self.block_bytes} {self.kv_layout}"
        return blake2b(cut.encode(), digest_size=NAME_BYTES).hexdigest()

    def content_bytes(self, num_blocks: int) -> int:
        """Of so many blocks: none where they have no content."""
        return num_blocks * self.block_bytes if self.kv_layout else 0


@dataclass(frozen=True, slots=True)
class SequenceState:
    """One sequence, as in `Sequence`. Its prompt is the payload's."""

    choice: int
    output_token_ids: list[int]
    num_computed_tokens: int
    places: list[int]
    """Of its blocks, among those of the image."""
    logprobs: list[TokenLogprob]
    sum_logprobs: float
    continuations: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class RequestState:
    """An attempt of a request while no step computes it, as in `Request`."""

    request_id: str
    attempt: int
    format: BlockFormat
    num_blocks: int
    sequences: list[SequenceState]
    num_shared_tokens: int
    is_forked: bool
    hypotheses: list[Hypothesis]
    num_cached_tokens: int | None = None

    @property
    def num_bytes(self) -> int:
        """Of its blocks, also where they have no content (a predicted device)."""
        return self.num_blocks * self.format.block_bytes

    @property
    def kv_tokens(self) -> int:
        """Tokens whose keys and values lie in its blocks; those that sequences share count once."""
        filled: dict[int, int] = {}
        for sequence in self.sequences:
            for index, place in enumerate(sequence.places):
                num_tokens = min(self.format.block_size, sequence.num_computed_tokens - index * self.format.block_size)
                filled[place] = max(filled.get(place, 0), num_tokens)
        return sum(filled.values())

    @property
    def is_whole(self) -> bool:
        """Whether its sequences have just the blocks for what they have computed, and those are all that there are."""
        places = {place for one in self.sequences for place in one.places}
        return (
            bool(self.sequences)
            and self.format.block_size > 0
            and self.format.block_bytes >= 0
            and len(places) == self.num_blocks  # first: a number of blocks that is only claimed could be any
            and places == set(range(self.num_blocks))
            and all(one.num_computed_tokens >= 0 for one in self.sequences)
            and all(-(-one.num_computed_tokens // self.format.block_size) == len(one.places) for one in self.sequences)
        )

    def refusal(self, payload: Payload, model: LoadedModel) -> str:
        """Why it cannot go on as this attempt with this model, or ``""``."""
        if (self.request_id, self.attempt) != (payload.request_id, payload.attempt):
            return f"it is of attempt {self.attempt} of {self.request_id!r}"
        here = BlockFormat.of(model, payload.adapter)
        if self.format != here:
            return f"its blocks are {self.format}; here they are {here}"
        num_prompt = len(payload.prompt_token_ids)
        if any(one.num_computed_tokens > num_prompt + len(one.output_token_ids) for one in self.sequences):
            return "it has computed more tokens than there are"
        if any(not 0 <= token < model.vocab_size for token in self._token_ids()):
            return f"it has a token outside the vocabulary of {model.vocab_size}"
        return ""

    def _token_ids(self) -> Iterator[int]:
        """All that it will go on with, or tell."""
        for one in self.sequences:
            yield from one.output_token_ids
            yield from (token for token, _ in one.continuations)
        for hypothesis in self.hypotheses:
            yield from hypothesis.token_ids


@dataclass(frozen=True, slots=True)
class RequestImage:
    """State and content."""

    state: RequestState
    content: memoryview
    """Block after block; nothing where blocks have no content."""

    def part(self, places: tuple[int, ...]) -> memoryview:
        """The content of some of its blocks, one behind the other."""
        num_bytes = self.state.format.block_bytes if self.state.format.kv_layout else 0
        if places == tuple(range(self.state.num_blocks)):
            return self.content
        return memoryview(b"".join(self.content[place * num_bytes : (place + 1) * num_bytes] for place in places))


@dataclass(frozen=True, slots=True)
class BegunImage:
    """The beginning of a request's image, which others may read while its prompt is computed."""

    number: int
    """As in `HandedOver`; its room in host memory is taken under this number."""
    memory: memoryview
    """Of all that it is expected to hold, blocks first; nothing where blocks have no content."""
    num_blocks: int
    """That lie in it: the first of the prompt, all of them full."""

    def write(self, begin: int, content: memoryview) -> None:
        """Put content of blocks where their bytes begin; there may be none."""
        if content:
            self.memory[begin : begin + len(content)] = content


@dataclass(frozen=True, slots=True)
class Growth:
    """There is more of an image than before."""

    request_id: str
    attempt: int
    number: int
    num_bytes: int
    """Of blocks that can be read, from the first on; also where they have no content."""
    most_bytes: int
    """Of all blocks that it is expected to have."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A request that was taken out."""

    request_id: str
    kv_tokens: int
    """Tokens whose KV is kept here; 0 where host memory had no room."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A request that another engine goes on with. Its memory counts here until it is released."""

    request_id: str
    attempt: int
    number: int
    """Names it among those that this engine has handed over."""
    pieces: tuple[SerialisedImage, ...]
    """Its serialised image, in pieces that lie one behind the other: the content is not copied for it."""
    kv_bytes: int
    """Of its blocks, also where they have no content."""

    @property
    def num_bytes(self) -> int:
        """Of the serialised image."""
        return sum(len(piece) for piece in self.pieces)

    @property
    def data(self) -> bytes:
        """The serialised image in one piece: a copy."""
        return b"".join(self.pieces)

"""What is kept of a request that was taken out: all it needs to go on, without computing anything again.

An image is the request's state, in integers and floats, and the content of its blocks, each of them once however many
sequences share it (eviction as QLM has it, SoCC'24, §5: KV moves to host memory and the request goes on from there).
It outlives the model on the device, and serialised it goes to another engine that cuts the same blocks.
"""

from __future__ import annotations

import msgspec

from gpu_node.engine.beams import Hypothesis
from gpu_node.engine.model import LoadedModel
from shared.messages import TokenLogprob
from shared.payload import Payload

IMAGE_VERSION = 1
"""Of the serialised form; engines of another one run the request from its payload."""


class ImageError(ValueError):
    """An image that this engine cannot use; the text says why."""


class BlockFormat(msgspec.Struct, frozen=True):
    """Whose blocks, and how they are cut: content means something only to an engine where all of this is equal."""

    model: str
    block_size: int
    """Tokens a block."""
    block_bytes: int
    kv_layout: str
    """As in `LoadedModel`; empty where blocks have no content."""

    @classmethod
    def of(cls, model: LoadedModel) -> BlockFormat:
        """That of a loaded model."""
        return cls(model.name, model.block_size, model.block_bytes, model.kv_layout)


class SequenceState(msgspec.Struct, frozen=True):
    """One sequence, as in `Sequence`. Its prompt is the payload's."""

    choice: int
    output_token_ids: list[int]
    num_computed_tokens: int
    places: list[int]
    """Of its blocks, among those of the image."""
    logprobs: list[TokenLogprob]
    sum_logprobs: float
    continuations: list[tuple[int, float]]


class RequestState(msgspec.Struct, frozen=True):
    """An attempt of a request while no step computes it, as in `Request`."""

    request_id: str
    attempt: int
    format: BlockFormat
    num_blocks: int
    sequences: list[SequenceState]
    num_shared_tokens: int
    is_forked: bool
    hypotheses: list[Hypothesis]

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
        """Whether its sequences have blocks for what they have computed, and all of them are there."""
        return bool(self.sequences) and all(
            one.num_computed_tokens <= len(one.places) * self.format.block_size
            and all(0 <= place < self.num_blocks for place in one.places)
            for one in self.sequences
        )

    def refusal(self, payload: Payload, model: LoadedModel) -> str:
        """Why it cannot go on as this attempt with this model, or ``""``."""
        if (self.request_id, self.attempt) != (payload.request_id, payload.attempt):
            return f"it is of attempt {self.attempt} of {self.request_id!r}"
        if self.format != BlockFormat.of(model):
            return f"its blocks are {self.format}; here they are {BlockFormat.of(model)}"
        return ""


class RequestImage(msgspec.Struct, frozen=True):
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


class _Sealed(msgspec.Struct, frozen=True):
    version: int
    image: RequestImage


def encode_image(image: RequestImage) -> bytes:
    """The serialised form."""
    return msgspec.msgpack.encode(_Sealed(IMAGE_VERSION, image))


def decode_image(data: bytes) -> RequestImage:
    """The image of a serialised form; `ImageError` if it is none of this version, or not whole."""
    try:
        sealed = msgspec.msgpack.decode(data, type=_Sealed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImageError(f"it does not decode: {error}") from error
    if sealed.version != IMAGE_VERSION:
        raise ImageError(f"it is of version {sealed.version}; this engine has {IMAGE_VERSION}")
    state, content = sealed.image.state, sealed.image.content
    num_bytes = state.num_bytes if state.format.kv_layout else 0
    if not state.is_whole:
        raise ImageError(f"its {state.num_blocks} blocks are not those of its sequences")
    if len(content) != num_bytes:
        raise ImageError(f"its content has {len(content)} bytes instead of {num_bytes}")
    return sealed.image

"""What node agent and engine process say about beginnings of prompts that go from node to node."""

from __future__ import annotations

from gpu_node.engine.process.protocol.frames import Frame, ImageFile
from shared.messages.prefixes.prefix_ask import PrefixAsk

# --- agent -> engine ------------------------------------------------------------------------------------------------


class FindPrefix(Frame, frozen=True):
    """How much of a request's prompt is cached? Answered by `PrefixFound`."""

    request_id: str
    attempt: int
    model: str
    owner: str
    """As `Payload.owner`."""
    token_ids: list[int]


class CopyPrefix(Frame, frozen=True):
    """Copy what is cached of a text, for another engine. Answered by `PrefixCopied`."""

    number: int
    """Names the question."""
    ask: PrefixAsk


# --- engine -> agent ------------------------------------------------------------------------------------------------


class PrefixFound(Frame, frozen=True):
    """Answer to `FindPrefix`: tokens, from the first on."""

    request_id: str
    attempt: int
    device_tokens: int
    """Found on the device."""
    num_tokens: int
    """There, or in host memory."""


class PrefixCopied(Frame, frozen=True):
    """Answer to `CopyPrefix`. The engine keeps the file open and counts its memory until it is told to release it."""

    number: int
    """Of the question."""
    image: int
    """Names it to `ReleaseImages`."""
    file: ImageFile
    """Empty where nothing is given, and nothing is to be released: it is not cached any more, the other engine cuts
    other blocks, or there is no room for a copy."""


class PrefixTaken(Frame, frozen=True):
    """A `RunAttempt` came with a prefix: so many tokens of it were new, and are in the cache."""

    num_tokens: int
    is_refused: bool = False
    """It could not be used; the engine's log says why."""


PrefixCommand = FindPrefix | CopyPrefix
PrefixEvent = PrefixFound | PrefixCopied | PrefixTaken

"""What is new of an answer, on its way from the decisions about it to its writer."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.openai.answers.answers import FinishReason
from shared.messages.requests.token_logprob import TokenLogprob


class Failure(enum.Enum):
    """Why a request ended without an answer; it ends all its choices."""

    ENGINE = "engine"
    """The node reported an error, or sent what cannot be."""
    LOST = "lost"
    """No node brings it forward (see `MAX_FRUITLESS_ATTEMPTS`)."""
    STOPPING = "stopping"
    """This gateway is about to end, and no token will come for it here."""
    REVOKED = "revoked"
    """The client's key is not valid any more."""


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """The node says that the request can never run; its client can do something about it."""

    why: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """The queue manager says that the promise cannot be kept (`shared.messages.requests.requests.Rejected`)."""

    wait_s: float
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Crashed:
    """Engines die with the request: another one would, too."""

    request_id: str
    num_crashes: int


End = Failure | NodeRefusal | Rejection | Crashed
"""Why there is no answer, or no more of it."""


class ScoredToken(msgspec.Struct, frozen=True):
    """A token with its logprob, where the client asked for logprobs."""

    token_id: int
    text_offset: int
    """Characters of the choice's text before the token's own."""
    score: TokenLogprob


class Delta(msgspec.Struct, frozen=True):
    """What is new of one choice: text that may go to the client, the tokens behind it, and how it ended if it did.

    A msgspec struct, since one is made for every token: a frozen dataclass takes six times as long to make.
    """

    text: str = ""
    num_tokens: int = 0
    """New tokens, whether their text may go out yet or not."""
    finish_reason: FinishReason | None = None
    choice: int = 0
    """Its place in the client's answer."""
    scored: tuple[ScoredToken, ...] = ()
    """Tokens whose text is out with this delta or before it; empty where no logprobs were asked for."""
    num_thought_tokens: int = 0
    """Tokens, of this delta or before it, that have turned out to be thoughts; 0 where these are not told apart."""
    stop_string: str | None = None
    """The one that ended it, where one did."""
    embedding: bytes = b""
    """As in `Chunk.embedding`: the whole of an answer that is one, and counts as a token."""


def merged(deltas: Sequence[Delta]) -> list[Delta]:
    """One delta for each choice that occurs, in the order of their numbers."""
    if len(deltas) == 1:
        return list(deltas)
    by_choice: dict[int, list[Delta]] = {}
    for delta in deltas:
        by_choice.setdefault(delta.choice, []).append(delta)
    return [_joined(by_choice[choice]) for choice in sorted(by_choice)]


def _joined(deltas: list[Delta]) -> Delta:
    if len(deltas) == 1:
        return deltas[0]
    return Delta(
        text="".join(delta.text for delta in deltas),
        num_tokens=sum(delta.num_tokens for delta in deltas),
        finish_reason=deltas[-1].finish_reason,
        choice=deltas[0].choice,
        scored=tuple(scored for delta in deltas for scored in delta.scored),
        num_thought_tokens=sum(delta.num_thought_tokens for delta in deltas),
        stop_string=deltas[-1].stop_string,
    )

"""The decisions about one answer: which tokens are new, what text they give, when it ends. No I/O, no clock.

A token counts once, whatever the way here did to its message: `Generation.accept` drops chunks of an older attempt
and tokens that it has, and notices when some are missing. What it has accepted is what the next attempt goes on from,
so a client's stream has every token exactly once.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.detokenizer import Detokenizer
from gateway.openai_responses import FinishReason
from gateway.stop_strings import StopMatcher
from shared.messages import Chunk

# A request whose attempts bring no new token this often in a row is the reason why its nodes die, and is given up.
MAX_FRUITLESS_ATTEMPTS = 4

_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}  # all else a node says is a failure


class Failure(enum.Enum):
    """Why an answer ended without a finish reason."""

    ENGINE = "engine"
    """The node reported an error."""
    LOST = "lost"
    """No node brings it forward (see `MAX_FRUITLESS_ATTEMPTS`), or the cluster has forgotten it."""


@dataclass(frozen=True)
class Delta:
    """What is new: text that may go to the client, the number of tokens behind it, and how it ended if it did."""

    text: str = ""
    num_tokens: int = 0
    finish_reason: FinishReason | None = None
    failure: Failure | None = None

    @property
    def is_last(self) -> bool:
        """Nothing comes after this."""
        return self.finish_reason is not None or self.failure is not None

    def __add__(self, later: Delta) -> Delta:
        return Delta(self.text + later.text, self.num_tokens + later.num_tokens, later.finish_reason, later.failure)


class Verdict(enum.Enum):
    """A chunk that brought nothing."""

    IGNORED = "ignored"
    """Of another attempt, seen before, or after the end."""
    GAP = "gap"
    """Tokens before it are missing: this attempt cannot be trusted any more."""


class Generation:
    """The state of one answer over all its attempts."""

    def __init__(self, token_bytes: Sequence[bytes], stops: Sequence[str], max_tokens: int) -> None:
        self.attempt = 0
        self.output_token_ids: list[int] = []
        self.is_over = False
        self.ended_by_node = False
        """The node knows that it is over, so nobody has to tell it."""
        self._max_tokens = max_tokens
        self._detokenizer = Detokenizer(token_bytes)
        self._stops = StopMatcher(stops)
        self._num_fruitless = 0

    def accept(self, chunk: Chunk) -> Delta | Verdict:
        """Take what is new in a chunk."""
        expected = len(self.output_token_ids)
        end = chunk.index + len(chunk.token_ids)
        if self.is_over or chunk.attempt != self.attempt:
            return Verdict.IGNORED
        if chunk.finish_reason and chunk.finish_reason not in _FINISH_REASONS and not chunk.token_ids:
            return self._take([], chunk.finish_reason)  # the end, wherever the node thinks the answer stood
        if chunk.index > expected:
            return Verdict.GAP
        if end < expected or (end == expected and not chunk.finish_reason):
            return Verdict.IGNORED
        return self._take(chunk.token_ids[expected - chunk.index :], chunk.finish_reason)

    def may_try_again(self) -> bool:
        """Whether another attempt is worth it."""
        return not self.is_over and self._num_fruitless < MAX_FRUITLESS_ATTEMPTS

    def begin_attempt(self, attempt: int) -> None:
        """From now on only this attempt's tokens count."""
        assert attempt == self.attempt + 1
        self.attempt = attempt
        self._num_fruitless += 1

    def give_up(self) -> Delta:
        """End without an answer."""
        self.is_over = True
        return Delta(failure=Failure.LOST)

    def _take(self, token_ids: Sequence[int], finish_reason: str) -> Delta:
        pieces = []
        num_tokens = 0
        self.ended_by_node = bool(finish_reason)
        for token_id in token_ids:
            self.output_token_ids.append(token_id)
            num_tokens += 1
            piece, is_stopped = self._stops.feed(self._detokenizer.feed(token_id))
            pieces.append(piece)
            if is_stopped:
                self.is_over = True
                return Delta("".join(pieces), num_tokens, "stop")
            if len(self.output_token_ids) == self._max_tokens:
                # Also bounds what a node that does not count could make this process hold.
                finish_reason = finish_reason if num_tokens == len(token_ids) and finish_reason else "length"
                break
        if num_tokens:
            self._num_fruitless = 0
        if not finish_reason:
            return Delta("".join(pieces), num_tokens)
        return self._end("".join(pieces), num_tokens, finish_reason)

    def _end(self, text: str, num_tokens: int, finish_reason: str) -> Delta:
        """Add what was held back: the rest of a character, then the beginning of a stop string that did not come."""
        self.is_over = True
        rest, is_stopped = self._stops.feed(self._detokenizer.flush())
        text += rest
        if is_stopped:
            return Delta(text, num_tokens, "stop")
        text += self._stops.flush()
        if finish_reason not in _FINISH_REASONS:
            return Delta(text, num_tokens, failure=Failure.ENGINE)
        return Delta(text, num_tokens, _FINISH_REASONS[finish_reason])

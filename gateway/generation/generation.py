"""The decisions about one request's answer: which tokens are new, when it ends, when to try again. No I/O, no clock.

A token counts once, whatever the way here did to its message: `Generation.accept` drops chunks of an older attempt
and tokens that it has, and notices when some are missing. What it has accepted is what the next attempt goes on from,
so a client's stream has every token of every choice exactly once.

The answer is over when all its choices are. A choice that a stop string ends is over here at once; the node, which
knows nothing of stop strings, goes on with it until all are over, and what it still sends of that choice is ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from gateway.generation.choice import Choice
from gateway.generation.stop_strings import StopPattern
from gateway.openai.answers.answers import FinishReason
from gateway.openai.answers.delta import Crashed, Delta, Failure, NodeRefusal, Rejection
from gateway.reasoning.marks import ThoughtReading
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import Chunk, Rejected

# A request whose attempts bring no new token this often in a row is the reason why its nodes die, and is given up.
MAX_FRUITLESS_ATTEMPTS = 4

# One with which engines die so often, and no token comes in between, is the reason; it began alone the second time.
MAX_CRASHES = 2
MAX_CRASHES_IN_ALL = 8  # nor do a few tokens between two of them go on for ever

# It gives way when a plan, or a Redis that lost its end, took it off its node: chance, but not so often in a row.
MAX_GIVEN_WAY = 64

FLOAT_BYTES = 4  # of a number of an embedding

_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}  # all else a node says is a failure


class Verdict(enum.Enum):
    """A chunk that brought nothing."""

    IGNORED = "ignored"
    """Of another attempt, seen before, or after the end."""
    GAP = "gap"
    """Something before it is missing: this attempt cannot be trusted any more."""


class Generation:
    """The state of one request's answer over all its attempts.

    A client that sent several prompts has several requests; its choices are numbered through, and those of this request
    begin with ``first_choice``. On the wire each request counts from 0.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        stops: Sequence[StopPattern],
        sampling: Sampling,
        first_choice: int = 0,
        thoughts: ThoughtReading | None = None,
    ) -> None:
        """``thoughts``: how they are told apart, where they are; their tokens are counted."""
        self.attempt = 0
        self.is_over = False
        self.ended_by_node = False
        """The node knows that it is over (or the queue manager does, which refused it), so it need not be told."""
        numbers = range(first_choice, first_choice + sampling.num_choices)
        self._choices = [Choice(number, token_bytes, stops, sampling, thoughts) for number in numbers]
        self._wants_logprobs = sampling.num_logprobs is not None
        self._is_embedding = sampling.is_embedding
        self._is_checked = self._wants_logprobs or self._is_embedding  # each chunk of it
        self._num_fruitless = 0
        self._num_given_way = 0
        self.num_crashes = 0
        """Attempts that ended with their engine, since a token came."""
        self.num_crashes_in_all = 0
        self.num_cached_tokens: int | None = None
        """Of the prompt, as the first attempt that brought a token says (`Chunk.cached_tokens`); None before, or where
        it does not say: a later one may find what this request has computed."""

    @property
    def outputs(self) -> list[Output]:
        """What the client has of each choice; empty while it has nothing."""
        return [choice.output for choice in self._choices] if self.has_begun else []

    @property
    def has_begun(self) -> bool:
        """There are tokens, or ends without any."""
        return any(choice.token_ids or choice.finish_reason for choice in self._choices)

    def accept(self, chunk: Chunk) -> Delta | Failure | NodeRefusal | Verdict:
        """Take what is new in a chunk."""
        if self.is_over or chunk.attempt != self.attempt:
            return Verdict.IGNORED
        if chunk.finish_reason == "refused":
            self.is_over = self.ended_by_node = True
            return NodeRefusal(chunk.error)
        is_simple = not (chunk.finish_reason or chunk.is_last or chunk.choice or self._is_checked)  # most are
        if not is_simple and self._is_wrong(chunk):
            self.is_over, self.ended_by_node = True, chunk.is_last
            return Failure.ENGINE
        choice = self._choices[chunk.choice]
        if chunk.is_last and any(other.finish_reason is None for other in self._choices if other is not choice):
            return Verdict.GAP  # the end of another choice has not come, and will not
        if choice.finish_reason is not None:
            return Verdict.IGNORED
        expected = len(choice.token_ids)
        end = chunk.index + len(chunk.token_ids)
        if chunk.index > expected:
            return Verdict.GAP
        if end < expected or (end == expected and not chunk.finish_reason):
            return Verdict.IGNORED
        return self._take(choice, chunk, num_known=expected - chunk.index)

    def reject(self, message: Rejected) -> Rejection | Verdict:
        """End without an answer, unless it is over or this is about another attempt."""
        if self.is_over or message.attempt != self.attempt:
            return Verdict.IGNORED
        self.is_over = self.ended_by_node = True
        return Rejection(message.wait_s, message.retry_after_s)

    def may_try_again(self, *, gave_way: bool = False, has_crashed: bool = False) -> bool:
        """Whether another attempt is worth it, after one that ``gave_way`` or ``has_crashed`` an engine."""
        if self.is_over:
            return False
        if has_crashed:
            return self.num_crashes + 1 < MAX_CRASHES and self.num_crashes_in_all + 1 < MAX_CRASHES_IN_ALL
        return self._num_given_way < MAX_GIVEN_WAY if gave_way else self._num_fruitless < MAX_FRUITLESS_ATTEMPTS

    def begin_attempt(self, attempt: int, *, gave_way: bool = False, has_crashed: bool = False) -> None:
        """From now on only this attempt's tokens count. The last one is not held against it where it ``gave_way``."""
        assert attempt == self.attempt + 1
        self.attempt = attempt
        self._num_given_way += gave_way
        self._num_fruitless += not gave_way
        self.num_crashes += has_crashed
        self.num_crashes_in_all += has_crashed

    def give_up(self, why: Failure = Failure.LOST) -> Failure:
        """End without an answer: by default, because no attempt brings it forward."""
        self.is_over = True
        return why

    def stop(self) -> Failure:
        """End without an answer, or without the rest of it: the gateway ends."""
        self.is_over = True
        return Failure.STOPPING

    def crash(self, request_id: str) -> Crashed:
        """End without an answer: one engine more has died."""
        self.is_over = True
        self.num_crashes_in_all += 1
        return Crashed(request_id, self.num_crashes_in_all)

    def _is_wrong(self, chunk: Chunk) -> bool:
        """Whether the node reports an error, or sends what it must not; another attempt would bring the same."""
        is_end = chunk.finish_reason != "" or chunk.is_last
        return (
            (is_end and chunk.finish_reason not in _FINISH_REASONS)
            or not 0 <= chunk.choice < len(self._choices)
            or (self._wants_logprobs and len(chunk.logprobs) != len(chunk.token_ids))
            or self._is_embedding != _is_embedding(chunk)
        )

    def _take(self, choice: Choice, chunk: Chunk, num_known: int) -> Delta:
        token_ids = chunk.token_ids[num_known:] if num_known else chunk.token_ids
        scores = chunk.logprobs[num_known:] if self._wants_logprobs else []
        finish_reason = _FINISH_REASONS[chunk.finish_reason] if chunk.finish_reason else None
        if chunk.cached_tokens is not None and not choice.token_ids:
            self.num_cached_tokens = chunk.cached_tokens
        delta = (
            choice.take_embedding(chunk.embedding)
            if self._is_embedding
            else choice.take(token_ids, scores, finish_reason)
        )
        if delta.finish_reason is not None:
            self.is_over = all(one.finish_reason is not None for one in self._choices)
            self.ended_by_node = chunk.is_last
        if delta.num_tokens:
            self._num_fruitless = self._num_given_way = self.num_crashes = 0
        return delta


def _is_embedding(chunk: Chunk) -> bool:
    """Whether it is the whole of an answer that is an embedding, as a node has to send it."""
    is_whole = chunk.finish_reason == "stop" and chunk.is_last and not chunk.token_ids
    return is_whole and chunk.embedding != b"" and len(chunk.embedding) % FLOAT_BYTES == 0

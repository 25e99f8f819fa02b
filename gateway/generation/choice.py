"""One continuation of a request, over all attempts: its tokens, the text they give, and its end."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from gateway.generation.detokenizer import Detokenizer
from gateway.generation.held_scores import HeldScores
from gateway.generation.stop_strings import StopMatcher, StopPattern
from gateway.openai.answers.answers import FinishReason
from gateway.openai.answers.delta import Delta
from gateway.reasoning.counter import ThoughtCounter
from gateway.reasoning.marks import ThoughtReading
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.token_logprob import TokenLogprob


class Choice:
    """Takes tokens in their order, each once; `Generation` sees to that. ``number`` is its place for the client."""

    def __init__(
        self,
        number: int,
        token_bytes: Sequence[bytes],
        stops: Sequence[StopPattern],
        sampling: Sampling,
        thoughts: ThoughtReading | None = None,
    ) -> None:
        """``thoughts``: how they are told apart, where they are; their tokens are counted."""
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        """How it ended; None while it runs."""
        self._number = number
        self._max_tokens = sampling.max_tokens
        self._detokenizer = Detokenizer(token_bytes)
        self._thoughts = ThoughtCounter(thoughts) if thoughts is not None else None
        self._text_of = self._detokenizer.feed if self._thoughts is None else self._counted_text
        self._stops = StopMatcher(stops)
        self._scores = HeldScores() if sampling.num_logprobs is not None else None
        self._is_plain = not stops and self._scores is None
        self._num_decoded = 0  # characters; some may be held back, as they may begin a stop string
        self._num_out = 0

    @property
    def output(self) -> Output:
        """What the next attempt goes on from."""
        return Output(list(self.token_ids), self.finish_reason or "")

    def take(
        self, token_ids: Sequence[int], scores: Sequence[TokenLogprob], finish_reason: FinishReason | None
    ) -> Delta:
        """Take new tokens, and the end that comes with the last of them, if it does; a stop string ends it earlier.

        ``scores`` is one a token, or empty where no logprobs were asked for.
        """
        if self._is_plain:
            delta = self._take_plain(token_ids, finish_reason)
        else:
            delta = self._take_watched(token_ids, scores, finish_reason)
        if self._thoughts is None:
            return delta
        return structs.replace(delta, num_thought_tokens=self._thoughts.found())

    def take_embedding(self, embedding: bytes) -> Delta:
        """Take the whole answer of a request for an embedding."""
        self.finish_reason = "stop"
        return Delta(num_tokens=1, finish_reason="stop", choice=self._number, embedding=embedding)

    def _counted_text(self, token_id: int) -> str:
        assert self._thoughts is not None
        text = self._detokenizer.feed(token_id)
        self._thoughts.take(text)
        return text

    def _take_plain(self, token_ids: Sequence[int], finish_reason: FinishReason | None) -> Delta:
        """Nothing can end it before the last of these tokens, and nothing is held back but a piece of a character.

        What `_take_watched` gives too, token by token; most answers are plain, and most deltas are one token.
        """
        num_left = self._max_tokens - len(self.token_ids)
        if len(token_ids) >= num_left:
            # Also bounds what a node that does not count could make this process hold.
            finish_reason = finish_reason if finish_reason and len(token_ids) == num_left else "length"
            token_ids = token_ids[:num_left]
        self.token_ids += token_ids
        text_of = self._text_of
        text = text_of(token_ids[0]) if len(token_ids) == 1 else "".join(map(text_of, token_ids))
        if finish_reason is not None:
            text += self._detokenizer.flush()
            self.finish_reason = finish_reason
        return Delta(text, len(token_ids), finish_reason, self._number)

    def _take_watched(
        self, token_ids: Sequence[int], scores: Sequence[TokenLogprob], finish_reason: FinishReason | None
    ) -> Delta:
        pieces: list[str] = []
        num_tokens = 0
        for token_id in token_ids:
            self.token_ids.append(token_id)
            piece, is_stopped = self._feed(token_id, scores[num_tokens] if scores else None)
            pieces.append(piece)
            num_tokens += 1
            if is_stopped:
                return self._stopped("".join(pieces), num_tokens)
            if len(self.token_ids) == self._max_tokens:
                finish_reason = finish_reason if num_tokens == len(token_ids) and finish_reason else "length"
                break
        if finish_reason is not None:
            rest, is_stopped = self._flush()
            pieces.append(rest)
            if is_stopped:
                return self._stopped("".join(pieces), num_tokens)
        return self._delta("".join(pieces), num_tokens, finish_reason)

    def _feed(self, token_id: int, score: TokenLogprob | None) -> tuple[str, bool]:
        """The text that may go out with a token, and whether a stop string was completed."""
        begin = self._num_decoded
        text = self._text_of(token_id)
        self._num_decoded += len(text)
        if self._scores is not None and score is not None:
            self._scores.add(token_id, score, begin, self._num_decoded + self._detokenizer.is_amid_character)
        return self._stops.feed(text)

    def _flush(self) -> tuple[str, bool]:
        """What was held back: the rest of a character, then the beginning of a stop string that did not come."""
        rest, is_stopped = self._stops.feed(self._detokenizer.flush())
        return (rest, True) if is_stopped else (rest + self._stops.flush(), False)

    def _stopped(self, text: str, num_tokens: int) -> Delta:
        self.finish_reason = "stop"
        self._num_out += len(text)
        scored = self._scores.cut(self._num_out) if self._scores is not None else ()
        return Delta(text, num_tokens, "stop", self._number, scored, stop_string=self._stops.completed)

    def _delta(self, text: str, num_tokens: int, finish_reason: FinishReason | None) -> Delta:
        self.finish_reason = finish_reason
        self._num_out += len(text)
        scored = self._scores.release(self._num_out) if self._scores is not None else ()
        return Delta(text, num_tokens, finish_reason, self._number, scored)

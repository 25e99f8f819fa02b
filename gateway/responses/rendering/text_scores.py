"""Which tokens' logprobs belong to which text of an answer: those of thoughts and calls are not told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from gateway.answers.blocks import BlockAdded, BlockBegun, BlockEvent
from gateway.generation.logprobs import LogprobWriter
from gateway.openai.answers.answers import ChatTokenLogprob
from gateway.openai.answers.delta import Delta, ScoredToken

Read = Callable[[Delta], list[BlockEvent]]
"""What more of an answer adds to its blocks."""


class TextScores:
    """Of one answer, which is read token by token."""

    def __init__(self, writer: LogprobWriter) -> None:
        self.by_block: dict[int, list[ChatTokenLogprob]] = {}
        """Of texts, by their block's number."""
        self._writer = writer
        self._num_out = 0  # characters
        self._held: list[tuple[ScoredToken, int]] = []  # with characters of their own; none of these have come yet

    def read(self, delta: Delta, read: Read) -> list[tuple[BlockEvent, Sequence[ChatTokenLogprob]]]:
        """As ``read``, each event with the logprobs that it tells."""
        return [pair for piece in self._pieces(delta) for pair in self._of(piece, read(piece))]

    def _pieces(self, delta: Delta) -> Iterator[Delta]:
        """A token each, with the text that comes with it; the end comes with the last."""
        base, scored = self._num_out, delta.scored
        self._num_out += len(delta.text)
        ends = [max(0, one.text_offset - base) for one in scored[1:]]
        begin = 0
        for one, end in zip(scored, [*ends, len(delta.text)], strict=False):
            is_last = one is scored[-1]
            yield structs.replace(
                delta,
                text=delta.text[begin:end],
                scored=(one,),
                finish_reason=delta.finish_reason if is_last else None,
                num_tokens=1,
            )
            begin = end
        if not scored:
            yield delta

    def _of(self, piece: Delta, events: list[BlockEvent]) -> Iterator[tuple[BlockEvent, Sequence[ChatTokenLogprob]]]:
        self._held += [(one, len(piece.text)) for one in piece.scored]
        for event in events:
            told: list[ChatTokenLogprob] = []
            if isinstance(event, BlockAdded | BlockBegun) and event.block.kind != "text":
                self._held = []
            elif isinstance(event, BlockAdded):
                told = self._writer.chat(self._last(len(event.text))).content
                self.by_block.setdefault(event.block.number, []).extend(told)
                self._held = []
            yield event, told

    def _last(self, num_characters: int) -> list[ScoredToken]:
        """The tokens that this text is of, and those that began its first character: before them may be a mark."""
        found: list[ScoredToken] = []
        for one, size in reversed(self._held):
            if num_characters <= 0 and size:
                break
            num_characters -= size
            found.append(one)
        return found[::-1]

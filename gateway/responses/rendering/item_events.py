"""Blocks that begin, grow and end, as events of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.answers.blocks import AnswerBlock, BlockAdded, BlockBegun, BlockEvent
from gateway.openai.answers.answers import ChatTokenLogprob
from gateway.responses.rendering.events import (
    CallArgumentsDelta,
    CallArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseEvent,
)
from gateway.responses.rendering.output_items import begun_item, ended_item, item_id, part_of
from gateway.responses.rendering.spliced_delta import SplicedDelta


class ItemEvents:
    """Of one answer. ``numbers``: of all events of its stream, from which each takes the next.

    ``scores``: of texts, by the number of their block, as far as they have come; None where they are not wanted.
    """

    def __init__(
        self, request_id: str, numbers: Iterator[int], scores: Mapping[int, Sequence[ChatTokenLogprob]] | None = None
    ) -> None:
        self._request_id = request_id
        self._numbers = numbers
        self._scores = scores
        self._spliced: SplicedDelta | None = None

    def of(self, found: BlockEvent, told: Sequence[ChatTokenLogprob] = (), *, is_cut: bool) -> list[ResponseEvent]:
        """``is_cut``: what ends, ends because no more tokens were allowed. ``told``: of text that is added."""
        if isinstance(found, BlockAdded):
            return [self._added(found.block, found.text, told)]
        if isinstance(found, BlockBegun):
            return self._begun(found.block)
        return self._ended(found.block, is_cut=is_cut)

    def spliced(self, block: AnswerBlock, text: str) -> bytes:
        """More of a message's text, as it goes out: what `of` would give, at a fraction of its cost."""
        if self._spliced is None or self._spliced.block is not block:
            self._spliced = SplicedDelta(block, self._request_id)
        return self._spliced.around(next(self._numbers), text)

    def _begun(self, block: AnswerBlock) -> list[ResponseEvent]:
        item = begun_item(block, self._request_id)
        added = OutputItemAdded(sequence_number=next(self._numbers), output_index=block.number, item=item)
        if block.kind == "call":
            return [added]
        blank = part_of(block, "", None if self._scores is None else ())
        part = ContentPartAdded(
            sequence_number=next(self._numbers), output_index=block.number, item_id=item.id, part=blank
        )
        return [added, part]

    def _added(self, block: AnswerBlock, text: str, told: Sequence[ChatTokenLogprob]) -> ResponseEvent:
        name = item_id(block, self._request_id)
        number, place = next(self._numbers), block.number
        if block.kind == "text":
            return OutputTextDelta(sequence_number=number, output_index=place, item_id=name, delta=text, logprobs=told)
        kind = ReasoningTextDelta if block.kind == "thoughts" else CallArgumentsDelta
        return kind(sequence_number=number, output_index=place, item_id=name, delta=text)

    def _ended(self, block: AnswerBlock, *, is_cut: bool) -> list[ResponseEvent]:
        scores = None if self._scores is None else self._scores.get(block.number, ())
        item = ended_item(block, self._request_id, scores, is_cut=is_cut)
        number, text = block.number, block.text
        done: list[ResponseEvent] = []
        if block.kind == "call":
            call = CallArgumentsDone(
                sequence_number=next(self._numbers),
                output_index=number,
                item_id=item.id,
                name=block.name,
                arguments=text,
            )
            done.append(call)
        else:
            done.append(self._text_done(block, item.id, scores or ()))
            part = part_of(block, text, scores)
            done.append(
                ContentPartDone(sequence_number=next(self._numbers), output_index=number, item_id=item.id, part=part)
            )
        return [*done, OutputItemDone(sequence_number=next(self._numbers), output_index=number, item=item)]

    def _text_done(self, block: AnswerBlock, name: str, scores: Sequence[ChatTokenLogprob]) -> ResponseEvent:
        number, place = next(self._numbers), block.number
        if block.kind == "thoughts":
            return ReasoningTextDone(sequence_number=number, output_index=place, item_id=name, text=block.text)
        return OutputTextDone(
            sequence_number=number, output_index=place, item_id=name, text=block.text, logprobs=scores
        )

"""Blocks that begin, grow and end, as events of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.answers.blocks import AnswerBlock, BlockAdded, BlockBegun, BlockEvent, BlockKind
from gateway.responses.events import (
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
from gateway.responses.output_items import begun_item, ended_item, item_id, part_of
from gateway.responses.spliced_delta import SplicedDelta

_DELTAS: dict[BlockKind, type[OutputTextDelta | ReasoningTextDelta | CallArgumentsDelta]] = {
    "text": OutputTextDelta,
    "thoughts": ReasoningTextDelta,
    "call": CallArgumentsDelta,
}


class ItemEvents:
    """Of one answer. ``numbers``: of all events of its stream, from which each takes the next."""

    def __init__(self, request_id: str, numbers: Iterator[int]) -> None:
        self._request_id = request_id
        self._numbers = numbers
        self._spliced: SplicedDelta | None = None

    def of(self, found: BlockEvent, *, is_cut: bool) -> list[ResponseEvent]:
        """``is_cut``: what ends, ends because no more tokens were allowed."""
        if isinstance(found, BlockAdded):
            return [self._added(found.block, found.text)]
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
        part = ContentPartAdded(
            sequence_number=next(self._numbers), output_index=block.number, item_id=item.id, part=part_of(block, "")
        )
        return [added, part]

    def _added(self, block: AnswerBlock, text: str) -> ResponseEvent:
        kind = _DELTAS[block.kind]
        return kind(
            sequence_number=next(self._numbers),
            output_index=block.number,
            item_id=item_id(block, self._request_id),
            delta=text,
        )

    def _ended(self, block: AnswerBlock, *, is_cut: bool) -> list[ResponseEvent]:
        item = ended_item(block, self._request_id, is_cut=is_cut)
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
            kind = OutputTextDone if block.kind == "text" else ReasoningTextDone
            done.append(kind(sequence_number=next(self._numbers), output_index=number, item_id=item.id, text=text))
            part = part_of(block, text)
            done.append(
                ContentPartDone(sequence_number=next(self._numbers), output_index=number, item_id=item.id, part=part)
            )
        return [*done, OutputItemDone(sequence_number=next(self._numbers), output_index=number, item=item)]

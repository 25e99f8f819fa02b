"""Writes an answer of the Responses API, whole or as events, from the blocks of a chat's answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from msgspec import Struct, structs

from gateway.answers.blocks import AnswerReading, BlockEvent, Blocks
from gateway.answers.event import SseEvent, named
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from gateway.responses.answer import (
    IncompleteDetails,
    OutputItem,
    ResponseAnswer,
    ResponseFailure,
)
from gateway.responses.rendering.blank_answer import blank_answer
from gateway.responses.rendering.counts import counted
from gateway.responses.rendering.events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseErrorEvent,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
)
from gateway.responses.rendering.item_events import ItemEvents
from gateway.responses.rendering.output_items import ended_item
from gateway.responses.rendering.text_scores import TextScores
from gateway.responses.requests.request import ResponsesRequest


class ResponsesRenderer:
    """Writes one answer. ``reading``: of its one choice. ``scores``: where logprobs are told."""

    def __init__(
        self,
        body: ResponsesRequest,
        reading: AnswerReading,
        request_id: str,
        created: int,
        scores: TextScores | None = None,
    ) -> None:
        self._blank = blank_answer(body, f"resp_{request_id}", created)
        self._request_id = request_id
        self._reading = reading
        self._blocks = Blocks()
        self._numbers = count()
        self._scores = scores
        self._items = ItemEvents(request_id, self._numbers, None if scores is None else scores.by_block)
        self._is_cut = False
        self._body = body
        self._told: ResponseAnswer | None = None  # the whole answer, once it is known

    def opening(self, usage: Usage) -> list[SseEvent]:  # noqa: ARG002
        """That there is an answer."""
        created = ResponseCreated(sequence_number=next(self._numbers), response=self._blank)
        return _named(created, ResponseInProgress(sequence_number=next(self._numbers), response=self._blank))

    def events(self, delta: Delta) -> list[SseEvent]:
        """Items that begin, what is added to them, and those that end."""
        if self._scores is not None:
            found = self._scores.read(delta, self._read)
            return _named(*(event for one, told in found for event in self._items.of(one, told, is_cut=False)))
        text = self._blocks.open_text
        if text is not None and delta.finish_reason is None and self._reading.passes(delta.text):
            text.pieces.append(delta.text)
            return [self._items.spliced(text, delta.text)]
        return _named(*(event for found in self._read(delta) for event in self._items.of(found, is_cut=False)))

    def closing(self, usage: Usage) -> list[SseEvent]:
        """The end of the last item, and the whole answer."""
        last = [event for found in self._blocks.end() for event in self._items.of(found, is_cut=self._is_cut)]
        end = ResponseIncomplete if self._is_cut else ResponseCompleted
        return _named(*last, end(sequence_number=next(self._numbers), response=self._answer(usage)))

    def failed(self, error: ApiError) -> list[SseEvent]:
        """What went wrong, and the answer as far as it has come."""
        failure = ResponseFailure(code=error.code, message=error.message)
        answer = structs.replace(self._blank, status="failed", error=failure, output=self._output(is_cut=True))
        told = ResponseErrorEvent(
            sequence_number=next(self._numbers), code=error.code, message=error.message, param=error.param
        )
        return _named(told, ResponseFailed(sequence_number=next(self._numbers), response=answer))

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """The whole answer."""
        for delta in choices:
            if self._scores is None:
                self._read(delta)
            else:
                self._scores.read(delta, self._read)
        self._blocks.end()
        return self._answer(usage)

    def _read(self, delta: Delta) -> list[BlockEvent]:
        found = [event for one in self._reading.deltas(delta) for event in self._blocks.add(one)]
        self._is_cut = self._is_cut or self._reading.reason(delta) == "length"
        return found

    async def settle(self) -> None:
        """Have the answer kept, so that its client can go on from it at once."""
        if self._body.conversation is not None and self._told is not None:
            await self._body.conversation.keep(self._body.input, self._told)

    def _answer(self, usage: Usage) -> ResponseAnswer:
        self._told = structs.replace(
            self._blank,
            status="incomplete" if self._is_cut else "completed",
            incomplete_details=IncompleteDetails() if self._is_cut else None,
            output=self._output(is_cut=self._is_cut),
            usage=counted(usage),
        )
        return self._told

    def _output(self, *, is_cut: bool) -> list[OutputItem]:
        """All items; only the last one can be cut."""
        blocks, scores = self._blocks.all, self._scores
        return [
            ended_item(
                block,
                self._request_id,
                None if scores is None else scores.by_block.get(block.number, ()),
                is_cut=is_cut and block is blocks[-1],
            )
            for block in blocks
        ]


def _named(*events: ResponseEvent) -> list[SseEvent]:
    """As they go out, each under its type."""
    return [named(str(event.__struct_config__.tag), event) for event in events]

"""An answer as a row of blocks: thoughts, texts and calls, each begun, added to and ended.

APIs whose answers are lists of items (OpenAI's Responses, Anthropic's Messages) write these, each in its own words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from gateway.openai.answers.answers import ChatDelta, ChatFinishReason, ToolCallDelta
from gateway.openai.answers.delta import Delta

BlockKind = Literal["thoughts", "text", "call"]


@dataclass
class AnswerBlock:
    """One of them, as far as it is known."""

    number: int
    """Its place in the answer."""
    kind: BlockKind
    call_id: str = ""
    name: str = ""
    """Of the function that is called."""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What was added so far; of a call, its arguments."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class BlockBegun:
    """There is nothing of it yet but its place."""

    block: AnswerBlock


@dataclass(frozen=True, slots=True)
class BlockAdded:
    """More text of the block that was begun last; never empty."""

    block: AnswerBlock
    text: str


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """No more comes to it: it is whole, unless the answer was cut within it."""

    block: AnswerBlock


BlockEvent = BlockBegun | BlockAdded | BlockEnded


class AnswerReading(Protocol):
    """What is found in the text of one choice; it is read once, from its beginning to its end."""

    def passes(self, text: str) -> bool:
        """Whether the next piece is text as it is: it is taken then, as `deltas` would take it."""

    def deltas(self, delta: Delta) -> list[ChatDelta]:
        """What more of it is."""

    def reason(self, delta: Delta) -> ChatFinishReason | None:
        """Why it ended, if it did."""


class Blocks:
    """Of one choice. A block ends where the next one begins; only the last one is open."""

    def __init__(self) -> None:
        self.all: list[AnswerBlock] = []
        self._is_open = False

    def add(self, delta: ChatDelta) -> list[BlockEvent]:
        """What a chunk adds."""
        events: list[BlockEvent] = []
        if isinstance(delta.reasoning_content, str):
            events += self._continue("thoughts", delta.reasoning_content)
        if isinstance(delta.content, str):
            events += self._continue("text", delta.content)
        for call in delta.tool_calls or ():
            events += self._call(call)
        return events

    @property
    def open_text(self) -> AnswerBlock | None:
        """The text that is open; None where none is."""
        return self.all[-1] if self._is_open and self.all[-1].kind == "text" else None

    def end(self) -> list[BlockEvent]:
        """Behind the last chunk. An answer has a block at least: of text, be it empty."""
        begun = [] if self.all else self._begin(AnswerBlock(0, "text"))
        return [*begun, *self._close()]

    def _continue(self, kind: BlockKind, text: str) -> list[BlockEvent]:
        if not text:
            return []
        events: list[BlockEvent] = []
        if not self._is_open or self.all[-1].kind != kind:
            events = self._begin(AnswerBlock(len(self.all), kind))
        return [*events, self._added(text)]

    def _call(self, call: ToolCallDelta) -> list[BlockEvent]:
        events: list[BlockEvent] = []
        function = call.function
        if isinstance(call.id, str) and isinstance(function.name, str):
            events = self._begin(AnswerBlock(len(self.all), "call", call.id, function.name))
        return [*events, self._added(function.arguments)] if function.arguments else events

    def _begin(self, block: AnswerBlock) -> list[BlockEvent]:
        closed = self._close()
        self.all.append(block)
        self._is_open = True
        return [*closed, BlockBegun(block)]

    def _added(self, text: str) -> BlockAdded:
        block = self.all[-1]
        block.pieces.append(text)
        return BlockAdded(block, text)

    def _close(self) -> list[BlockEvent]:
        was_open, self._is_open = self._is_open, False
        return [BlockEnded(self.all[-1])] if was_open else []

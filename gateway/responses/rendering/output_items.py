"""Blocks of an answer as items of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from gateway.answers.blocks import AnswerBlock, BlockKind
from gateway.openai.answers.answers import ChatTokenLogprob
from gateway.responses.answer import (
    FunctionCallItem,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)

Scores = Sequence[ChatTokenLogprob] | None

_PREFIXES: dict[BlockKind, str] = {"thoughts": "rs", "text": "msg", "call": "fc"}


def item_id(block: AnswerBlock, request_id: str) -> str:
    """Its name, made of the request's and its place."""
    return f"{_PREFIXES[block.kind]}_{request_id}_{block.number}"


def part_of(block: AnswerBlock, text: str, scores: Scores = None) -> OutputText | ReasoningText:
    """The one part of a message, or of thoughts."""
    return output_text(text, scores) if block.kind == "text" else ReasoningText(text=text)


def output_text(text: str, scores: Scores) -> OutputText:
    """The text of a message, with the logprobs of its tokens where they were asked for."""
    return OutputText(text=text, logprobs=UNSET if scores is None else list(scores))


def begun_item(block: AnswerBlock, request_id: str) -> OutputItem:
    """As it is when it begins."""
    return _item(block, request_id, "in_progress", [])


def ended_item(block: AnswerBlock, request_id: str, scores: Scores = None, *, is_cut: bool) -> OutputItem:
    """As it is when no more comes to it. ``scores``: of its tokens, of a message; None where they are not wanted."""
    return _item(block, request_id, "incomplete" if is_cut else "completed", [block.text], scores)


def _item(
    block: AnswerBlock, request_id: str, status: ItemStatus, texts: list[str], scores: Scores = None
) -> OutputItem:
    name = item_id(block, request_id)
    if block.kind == "text":
        return OutputMessage(id=name, status=status, content=[output_text(text, scores) for text in texts])
    if block.kind == "thoughts":
        return ReasoningItem(id=name, status=status, content=[ReasoningText(text=text) for text in texts])
    return FunctionCallItem(id=name, status=status, call_id=block.call_id, name=block.name, arguments="".join(texts))

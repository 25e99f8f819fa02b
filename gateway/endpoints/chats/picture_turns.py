"""Images within turns: each is a mark in its turn's text, until the turn has the form that its template takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.models.chat_template import ChatTemplate
from gateway.models.pictures.picture_form import PictureForm

MARK = "\ufdd0"
"""One of Unicode's noncharacters, which no text has; a client's own is replaced (`without_marks`)."""


def without_marks(text: str) -> str:
    """A client's text: it shows no images."""
    return text.replace(MARK, "\ufffd") if MARK in text else text


def shown(turns: Iterable[Mapping[str, Any]], template: ChatTemplate, form: PictureForm) -> list[dict[str, Any]]:
    """Turns as the template takes them: parts where it knows them, else texts with the model's own placeholders.

    Where it takes both, turns without images are texts as ever.
    """
    listed = list(turns)
    has_images = any(MARK in (turn.get("content") or "") for turn in listed)
    takes_parts, takes_texts = template.takes_parts(), template.takes_texts()
    if takes_parts and (has_images or not takes_texts):
        return [{**turn, "content": _parts(turn.get("content") or "")} for turn in listed]
    return [{**turn, "content": _text(turn.get("content"), form.placeholder)} for turn in listed]


def _parts(content: str) -> list[dict[str, str]]:
    """A text stands between two images, or around them; a turn that says nothing has an empty one."""
    parts: list[dict[str, str]] = []
    for number, text in enumerate(content.split(MARK)):
        if number:
            parts.append({"type": "image"})
        if text:
            parts.append({"type": "text", "text": text})
    return parts or [{"type": "text", "text": ""}]


def _text(content: str | None, placeholder: str) -> str | None:
    """Images come before what is said, a line each: models were trained so, wherever clients put them."""
    if content is None or MARK not in content:
        return content
    return f"{placeholder}\n" * content.count(MARK) + content.replace(MARK, "")

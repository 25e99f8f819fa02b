"""Texts in a request, as OpenAI's API takes them: a string or token ids, or several of either kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TextOrTokens = str | list[str] | list[int] | list[list[int]]
"""What a client may send."""


def listed_texts(name: str, most: int) -> Callable[[Any], list[str | list[int]]]:
    """A validator: ``"text"`` and ``[1, 2]`` are one text; ``["a", "b"]`` and ``[[1], [2]]`` are several.

    ``name``: what such a text is called to clients. It looks at each token id, so the field needs no check of its own.
    """

    def listed(value: Any) -> list[str | list[int]]:
        texts = value if isinstance(value, list) and value and isinstance(value[0], str | list) else [value]
        # checked here and not by the union, whose errors would name its branches and not the field
        if len(texts) > most:
            raise ValueError(f"a request has at most {most} {name}s, not {len(texts)}")
        if not (all(isinstance(text, str) for text in texts) or all(map(_is_token_ids, texts))):
            article = "an" if name[0] in "aeiou" else "a"
            raise ValueError(f"{article} {name} is a string or a list of token ids; several are all of the same kind")
        return texts

    return listed


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)

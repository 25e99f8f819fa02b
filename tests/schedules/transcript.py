"""What happened, for a person: kept only where somebody will read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import msgspec

MAX_WORD = 400  # characters of one message


class Transcript:
    """Lines in the order in which things happened."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.lines: list[str] = []

    def note(self, now: float, who: str, words: Sequence[object]) -> None:
        """Somebody has done something."""
        if self.is_kept:
            self.lines.append(f"{now:8.3f}  {who:12}  {' '.join(word(one)[:MAX_WORD] for one in words)}")


def word(value: object) -> str:
    """A record with what it says beside its defaults."""
    if isinstance(value, msgspec.Struct):
        given = {
            field.name: getattr(value, field.name)
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != field.default
        }
        return f"{type(value).__name__}({', '.join(f'{name}={word(one)}' for name, one in given.items() if one != [])})"
    if is_dataclass(value) and not isinstance(value, type):
        given = {one.name: getattr(value, one.name) for one in fields(value) if getattr(value, one.name) != one.default}
        return f"{type(value).__name__}({', '.join(f'{name}={word(one)}' for name, one in given.items() if one != [])})"
    if isinstance(value, list):
        return f"[{', '.join(map(word, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {word(one)}' for key, one in value.items())}}}"
    return str(value)

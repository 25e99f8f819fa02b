"""Where a text begins or ends with a part of a control token, so that what is put beside it could make it whole.

Templates put a client's texts side by side, and between characters of their own: ``<`` and a parameter's name and
``>``, for one. A part that is a word stays as it is, since templates look at words (``name``, ``string``): what marks a
control token is beside it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_BETWEEN = "\0"
_WORD = re.compile(r"[\w-]*+")


class ControlEdges:
    """Of the control tokens of one vocabulary."""

    def __init__(self, control: Collection[str]) -> None:
        """``control``: their texts."""
        self.characters = frozenset("".join(control))
        """All there are in them."""
        self._heads = _parts(token[:length] for token in control for length in range(1, len(token)))
        self._tails = _parts(token[length:] for token in control for length in range(1, len(token)))
        self._all = _BETWEEN.join(control)
        self._longest = max(map(len, control), default=0)

    def inside(self, text: str) -> tuple[int, int]:
        """Where the rest of it begins and ends: what is outside of that is part of a control token's text.

        The longest part at each edge; of a text that lies within a token's, there is no rest.
        """
        if len(text) < self._longest and self._lies_within(text):
            return 0, 0
        reach = min(len(text), self._longest - 1)
        begin = next((length for length in range(reach, 0, -1) if text[:length] in self._tails), 0)
        end = next((length for length in range(reach, 0, -1) if text[-length:] in self._heads), 0)
        return begin, max(begin, len(text) - end)

    def _lies_within(self, text: str) -> bool:
        return _WORD.fullmatch(text) is None and self.characters.issuperset(text) and text in self._all


def _parts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text for text in texts if _WORD.fullmatch(text) is None)

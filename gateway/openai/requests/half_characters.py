"""JSON that a model wrote, with escapes of half a character: no text has one, and strict readers refuse it."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:u(?:d[89ab]..\\ud[c-f]..)|(u)d[89a-f]..|.)", re.IGNORECASE | re.DOTALL)
"""A pair of halves, one half alone (which has the group), or any other escape."""


def without_halves(text: str) -> str:
    """The same JSON with U+FFFD, as an escape, in the place of each half that stands alone."""
    return _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)

"""What ends a process with one clear line instead of a traceback."""

from __future__ import annotations


class OperatorError(Exception):
    """Something the person who runs the process has to put right; the text says what, and how."""

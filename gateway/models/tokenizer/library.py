"""Calls into the tokenizers library with what a model's files say: whatever goes wrong in there is one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.files.model_file import ModelFileError


@contextmanager
def refusing(text: str) -> Iterator[None]:
    """`ModelFileError` with ``text`` and the library's own words in place of what it raises.

    It raises nothing more specific than `Exception`; where it panics, as Rust calls it, not even that.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelFileError(f"{text}: {error}") from error

"""Token ids to text, one token at a time, without ever splitting a character.

In a byte-level vocabulary a token is a run of bytes, and a character may span several tokens. An incremental UTF-8
decoder is therefore the whole algorithm: it keeps back at most three bytes, which are looked at once more. The codec's
own function is called, since its class for this is written in Python and takes longer than all else that stands here.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Sequence


class Detokenizer:
    """The state of one answer. Bytes that are no valid UTF-8 become U+FFFD."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._partial = b""  # the beginning of a character

    def feed(self, token_id: int) -> str:
        """The characters that this token completes, often none or several."""
        # A weight matrix may have more rows than the vocabulary has tokens; such an id has no text.
        data = self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""
        if self._partial:
            data = self._partial + data
        text, num_read = utf_8_decode(data, "replace", False)
        self._partial = data[num_read:]
        return text

    @property
    def is_amid_character(self) -> bool:
        """Whether the last token ended inside of a character."""
        return bool(self._partial)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        text, _ = utf_8_decode(self._partial, "replace", True)
        self._partial = b""
        return text

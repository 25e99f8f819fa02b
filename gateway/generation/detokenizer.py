"""Token ids to text, one token at a time, without ever splitting a character.

In a byte-level vocabulary a token is a run of bytes, and a character may span several tokens. An incremental UTF-8
decoder is therefore the whole algorithm: it keeps back at most three bytes, and each byte is looked at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The state of one answer. Bytes that are no valid UTF-8 become U+FFFD."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = _Utf8Decoder(errors="replace")

    def feed(self, token_id: int) -> str:
        """The characters that this token completes, often none or several."""
        # A weight matrix may have more rows than the vocabulary has tokens; such an id has no text.
        data = self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""
        return self._decoder.decode(data)

    @property
    def is_amid_character(self) -> bool:
        """Whether the last token ended inside of a character."""
        return bool(self._decoder.getstate()[0])

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)

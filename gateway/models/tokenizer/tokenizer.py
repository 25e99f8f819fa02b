"""Text to token ids, with one rule of trust: only the author of a whole prompt may write control tokens into it.

A chat prompt has two authors, the template and the client. If ``<|im_end|>`` in a client's message became the control
token, the client could end its own turn and speak as the system. So control tokens are found here, by splitting,
and the text between them goes to an encoder that does not have them in its vocabulary; `user_text` hides
the ones that a client wrote from the splitting, and they come back as the plain characters they are. So it does with a
part of one at a text's edge: a template, or another text of the client's, may write the other part beside it.
The prompt of ``/v1/completions`` has one author, who may write control tokens just as he may send their ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from gateway.models.tokenizer.control_edges import ControlEdges
from gateway.models.tokenizer.known_texts import TextEncoder
from shared.vocabulary.control_token import ControlToken

# Two characters of a private plane stand for a hidden control token, or for a character of one: the mark, and one that
# says which. The mark itself is hidden in the same way, so that text which contains it comes back unharmed.
_MARK = "\U000f0000"
_FIRST_HIDDEN = ord(_MARK) + 1
_MAX_HIDDEN = 65_000  # what the private plane has room for

# A search holds the interpreter until it is back, and hostile text has it try all control tokens at each character: so
# it looks at this many at a time, and other threads get their turn between.
SEARCHED_CHARACTERS = 8192


@dataclass(frozen=True)
class TokenizerParts:
    """What a model's source, of whatever format, says about text and tokens."""

    control: Mapping[str, ControlToken]
    token_bytes: Sequence[bytes]
    """The text of each token id as it stands within a text; control tokens have none."""
    opening: Tokenizer
    """Encodes plain text at the very beginning of a prompt; it knows no control token."""
    inner: Tokenizer
    """The same for text after a control token; often the same object."""
    prefix_ids: tuple[int, ...]
    """What a prompt begins with if its author does not write it himself: BOS, or nothing."""
    suffix_ids: tuple[int, ...]
    """What a text that is whole ends with, likewise: EOS, of models that embed, or nothing. A prompt, which is to be
    continued, has none of it."""
    eos_ids: tuple[int, ...]
    """Tokens that end an answer."""
    bos_token: str
    eos_token: str


class PromptTokenizer:
    """The tokenizer of one model. Immutable, and safe to use from several threads."""

    def __init__(self, parts: TokenizerParts) -> None:
        self.vocab_size = len(parts.token_bytes)
        self.eos_ids = parts.eos_ids
        self.eos_token = parts.eos_token
        self.bos_token = parts.bos_token
        self.token_bytes = [b"" if index in parts.eos_ids else data for index, data in enumerate(parts.token_bytes)]
        """The text of each token id, as bytes; end tokens have none."""
        self._prefix_ids = list(parts.prefix_ids)
        self._suffix_ids = list(parts.suffix_ids)
        # files of others have tokens without a name, which would be found everywhere; the mark is ours
        self._control = {text: token for text, token in parts.control.items() if text and _MARK not in text}
        self._control_names = {control.id: text for text, control in parts.control.items()}
        self._split = _any_of(list(self._control))
        whole = [*self._control, _MARK]
        self._edges = ControlEdges(self._control)
        self._hidden = [*dict.fromkeys((*whole, *sorted(self._edges.characters)))]
        assert len(self._hidden) <= _MAX_HIDDEN
        self._codes = {text: _MARK + chr(_FIRST_HIDDEN + number) for number, text in enumerate(self._hidden)}
        self._hide = _any_of(whole)
        self._longest_hidden = max(map(len, whole))
        self.max_token_characters = max(self._longest_hidden, *map(len, parts.token_bytes))
        """No token stands for more text than this."""
        self._opening = TextEncoder(parts.opening)
        self._inner = self._opening if parts.inner is parts.opening else TextEncoder(parts.inner)

    def bytes_of(self, token_id: int) -> bytes:
        """The text of a token, as bytes; nothing for an id without text.

        A weight matrix may have more rows than the vocabulary has tokens, so that a model can draw such an id.
        """
        return self.token_bytes[token_id] if 0 <= token_id < self.vocab_size else b""

    def textless_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Those of the names that are control tokens of the model, with their ids."""
        return {name: self._control[name].id for name in names if name in self._control}

    def token_text(self, token_id: int) -> str:
        r"""A token for people: its text, ``bytes:\xf0\x9f`` for a part of a character, a control token's name."""
        data = self.bytes_of(token_id)
        if not data:
            return self._control_names.get(token_id, f"token_id:{token_id}")
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of whole tokens one after the other; bytes that are no valid UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, token_ids)).decode(errors="replace")

    def written(self, token_ids: Iterable[int]) -> str:
        """As `decode`, with control tokens by their names: what `encode` makes of it is these tokens again, mostly."""
        data = (self.bytes_of(token) or self._control_names.get(token, "").encode() for token in token_ids)
        return b"".join(data).decode(errors="replace")

    def encode(self, text: str, *, has_prefix: bool = True) -> list[int]:
        """Tokenise a prompt as a whole, control tokens included; BOS comes first if the model wants it."""
        ids = self._encode(self._parts(text))
        return self.prefixed(ids) if has_prefix else ids

    def encode_whole(self, text: str) -> list[int]:
        """Likewise a text that is not to be continued: with what the model wants behind it, too."""
        return self._suffixed(self.encode(text))

    def encode_filled(self, rendered: str, *, is_whole: bool, ends_in_text: bool = False) -> list[int]:
        """Likewise a form with clients' texts in it (`user_text`), which ``is_whole`` or is to be continued.

        ``ends_in_text``: in a client's, so that a control token at the end stands before a text that is empty.
        """
        ids = self.prefixed(self.encode_chat(rendered))
        if not is_whole:
            return ids
        return ids + self._suffix_ids if ends_in_text else self._suffixed(ids)

    def prefixed(self, ids: list[int]) -> list[int]:
        """The prompt with what the model wants it to begin with; one that brings its BOS gets no second one."""
        return ids if ids[: len(self._prefix_ids)] == self._prefix_ids else self._prefix_ids + ids

    def _suffixed(self, ids: list[int]) -> list[int]:
        has_suffix = not self._suffix_ids or ids[-len(self._suffix_ids) :] == self._suffix_ids
        return ids if has_suffix else ids + self._suffix_ids

    def encode_chat(self, rendered: str) -> list[int]:
        """Tokenise what a chat template rendered; it writes its own BOS, and `user_text` parts stay plain text."""
        return self._encode([self._reveal(part) for part in self._parts(rendered)])

    def user_text(self, text: str) -> str:
        """Prepare a client's text for a template: control tokens in it are hidden until the text is encoded.

        So are parts of one at its edges; texts that are put together are hidden each.
        """
        pieces = []
        position = 0
        for found in self._matches(self._hide, text):
            pieces += [text[position : found.start()], self._codes[found[0]]]
            position = found.end()
        hidden = "".join(pieces) + text[position:]
        begin, end = self._edges.inside(hidden)
        if begin == 0 and end == len(hidden):
            return hidden
        return self._coded(hidden[:begin]) + hidden[begin:end] + self._coded(hidden[end:])

    def _coded(self, fragment: str) -> str:
        return "".join(self._codes[character] for character in fragment)

    def _parts(self, text: str) -> list[str]:
        """Text, control token, text, …"""
        parts = []
        position = 0
        for found in self._matches(self._split, text):
            parts += [text[position : found.start()], found[0]]
            position = found.end()
        return [*parts, text[position:]]

    def _matches(self, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
        """As ``finditer``, in steps: what begins in a step's characters may end as far behind them as is needed."""
        position = 0
        while position < len(text):
            end = position + SEARCHED_CHARACTERS
            found = pattern.search(text, position, end + self._longest_hidden)
            if found is None or found.start() >= end:
                position = end
            else:
                yield found
                position = found.end()

    def _encode(self, parts: list[str]) -> list[int]:
        """Parts are text, control token, text, …"""
        texts = parts[::2]
        controls = [self._control[part] for part in parts[1::2]]
        for number, control in enumerate(controls):
            if control.lstrip:
                texts[number] = texts[number].rstrip()
            if control.rstrip:
                texts[number + 1] = texts[number + 1].lstrip()
        ids = list(self._opening.encode(texts[0]))
        for control, text in zip(controls, texts[1:], strict=True):
            ids.append(control.id)
            ids.extend(self._inner.encode(text))
        return ids

    def _reveal(self, text: str) -> str:
        if _MARK not in text:
            return text
        return re.sub(f"{_MARK}(.)", self._revealed, text, flags=re.DOTALL)

    def _revealed(self, found: re.Match[str]) -> str:
        number = ord(found[1]) - _FIRST_HIDDEN
        return self._hidden[number] if 0 <= number < len(self._hidden) else found[0]


def _any_of(literals: list[str]) -> re.Pattern[str]:
    """A pattern for the longest of the literals at the leftmost place; for none of them, never."""
    if not literals:
        return re.compile("(?!)")
    return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))))

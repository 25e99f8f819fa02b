"""Text to token ids, with one rule of trust: only who writes a whole prompt may write control tokens into it.

A chat prompt has two authors, the template and the client. If ``<|im_end|>`` in a client's message became the control
token, the client could end its own turn and speak as the system. So control tokens are found here, by splitting,
and the text between them goes to a byte-pair encoder that does not have them in its vocabulary; `user_text` hides
the ones that a client wrote from the splitting, and they come back as the plain characters they are.
The prompt of ``/v1/completions`` has one author, who may write control tokens just as he may send their ids.
"""

from __future__ import annotations

import re

from tokenizers import AddedToken, Tokenizer, models

from gateway.vocabulary import Kind, Vocabulary

# Two characters of a private plane stand for a hidden control token: the mark, and one that says which. The mark
# itself is hidden in the same way, so that text which contains it comes back unharmed.
_MARK = "\U000f0000"
_FIRST_HIDDEN = ord(_MARK) + 1
_MAX_HIDDEN = 65_000  # what the private plane has room for


class PromptTokenizer:
    """The tokenizer of one model file. Immutable, and safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        control = vocabulary.of_kind(Kind.CONTROL)
        self.vocab_size = len(vocabulary.tokens)
        self.eos_ids = vocabulary.eos_ids
        self.eos_token = vocabulary.tokens[vocabulary.eos_ids[0]]
        self.bos_token = "" if vocabulary.bos_id is None else vocabulary.tokens[vocabulary.bos_id]
        self.token_bytes = _bytes_by_id(vocabulary)
        """The text of each token id, as bytes; end tokens have none."""
        self._bos_id = vocabulary.bos_id if vocabulary.add_bos else None
        self._control = control
        self._split = _any_of(list(control))
        self._hidden = [*control, _MARK]
        assert len(self._hidden) <= _MAX_HIDDEN
        self._codes = {text: _MARK + chr(_FIRST_HIDDEN + number) for number, text in enumerate(self._hidden)}
        self._hide = _any_of(self._hidden)
        self._encoder = _encoder(vocabulary, control)

    def encode(self, text: str) -> list[int]:
        """Tokenise a prompt as a whole, control tokens included; BOS comes first if the model wants it."""
        ids = self._encode(text)
        if self._bos_id is not None and ids[:1] != [self._bos_id]:  # a prompt that brings its BOS gets no second one
            ids.insert(0, self._bos_id)
        return ids

    def encode_chat(self, rendered: str) -> list[int]:
        """Tokenise what a chat template rendered; it writes its own BOS, and `user_text` parts stay plain text."""
        return self._encode(rendered)

    def user_text(self, text: str) -> str:
        """Prepare a client's text for a template: control tokens in it are hidden until the text is encoded."""
        return self._hide.sub(lambda found: self._codes[found[0]], text)

    def _encode(self, text: str) -> list[int]:
        parts = self._split.split(text)  # text, control token, text, …: the pattern's group keeps the separators
        texts = [self._reveal(part) for part in parts[::2]]
        # The batch call lets go of the GIL, encode() does not: a long prompt in a thread would stop the event loop.
        encodings = self._encoder.encode_batch_fast(texts, add_special_tokens=False)
        ids: list[int] = list(encodings[0].ids)
        for control, encoding in zip(parts[1::2], encodings[1:], strict=True):
            ids.append(self._control[control])
            ids.extend(encoding.ids)
        return ids

    def _reveal(self, text: str) -> str:
        if _MARK not in text:
            return text
        return re.sub(f"{_MARK}(.)", self._revealed, text, flags=re.DOTALL)

    def _revealed(self, found: re.Match[str]) -> str:
        number = ord(found[1]) - _FIRST_HIDDEN
        return self._hidden[number] if 0 <= number < len(self._hidden) else found[0]


def _any_of(literals: list[str]) -> re.Pattern[str]:
    """A pattern, one group, for the longest of the literals at the leftmost place; for none of them, never."""
    if not literals:
        return re.compile("((?!))")
    return re.compile(f"({'|'.join(map(re.escape, sorted(literals, key=len, reverse=True)))})")


def _bytes_by_id(vocabulary: Vocabulary) -> list[bytes]:
    table = [vocabulary.bytes_of(index) for index in range(len(vocabulary.tokens))]
    for index in vocabulary.eos_ids:
        table[index] = b""
    return table


def _encoder(vocabulary: Vocabulary, control: dict[str, int]) -> Tokenizer:
    """The byte-pair encoder, without control tokens: no text whatsoever can become one."""
    recipe = vocabulary.recipe
    encoder = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens) if token not in control},
            merges=vocabulary.merges,
            ignore_merges=recipe.ignore_merges,
        )
    )
    encoder.pre_tokenizer = recipe.pre_tokenizer()
    if recipe.normalizer is not None:
        encoder.normalizer = recipe.normalizer()
    encoder.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.of_kind(Kind.USER_DEFINED)])
    return encoder

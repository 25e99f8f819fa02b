"""The text of each token of a ``tokenizer.json``, by its decoder.

A decoder turns a list of tokens into a text. Where the text of a token depends on no other token, the answer to a
prompt is simply its tokens' bytes one after the other; that holds for the decoders accepted here, with one exception
that does not concern an answer: at the beginning of a text some drop the space that the encoder put before the first
word. An answer continues its prompt, so that a space at its beginning is a space between words and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shared.vocabulary.gguf_vocabulary import BYTE_OF_CHARACTER
from shared.vocabulary.model_fields import ModelFields

METASPACE = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def text_of_tokens(tokenizer: ModelFields) -> Callable[[str], bytes]:
    """How a token's bytes follow from its name; `ModelFileError` for a decoder whose tokens depend on each other."""
    steps = tokenizer.steps("decoder", "decoders")
    if not steps:
        raise tokenizer.error("it has no decoder, so it is not known what text its tokens stand for")
    types = [step.get("type", str) for step in steps]
    if types == ["WordPiece"]:
        return _word_pieces(steps[0].get("prefix", str) or "##")
    if "ByteLevel" in types and {"ByteLevel", "Fuse"} >= set(types):
        return _byte_level
    replaced: list[tuple[str, str]] = []
    for number, (step, type_) in enumerate(zip(steps, types, strict=True)):
        is_fused = "Fuse" in types[:number]
        pattern = (step.section("pattern") or step).get("String", str)
        if type_ == "Replace" and pattern and not (is_fused and len(pattern) > 1):
            replaced.append((pattern, step.need("content", str)))
        elif type_ == "Metaspace":
            replaced.append((step.get("replacement", str) or METASPACE, " "))
        elif type_ in ("ByteFallback", "Fuse") or (type_ == "Strip" and is_fused and not step.get("stop", int)):
            continue  # a Strip of the whole text's beginning is the exception above
        else:
            raise tokenizer.error(
                f"a decoder of {', '.join(map(str, types))} is not supported; byte-level decoders are, and "
                "those of SentencePiece (Replace or Metaspace, ByteFallback, Fuse, Strip of the beginning)"
            )
    return _metaspace(replaced, has_bytes="ByteFallback" in types)


def _byte_level(token: str) -> bytes:
    """Each character stands for a byte; a token with any other character is taken as it is, as the library does."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()


def _word_pieces(prefix: str) -> Callable[[str], bytes]:
    """A token without the prefix begins a word; spaces and cases of a text that was normalised do not come back."""

    def text(token: str) -> bytes:
        return (token.removeprefix(prefix) if token.startswith(prefix) else f" {token}").encode()

    return text


def _metaspace(replaced: list[tuple[str, str]], *, has_bytes: bool) -> Callable[[str], bytes]:
    def text(token: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(token) if has_bytes else None
        if byte:
            return bytes.fromhex(byte[1])
        for old, new in replaced:
            token = token.replace(old, new)
        return token.encode()

    return text

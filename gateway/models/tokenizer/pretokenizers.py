"""How text is cut before byte-pair merging, by the name that a GGUF file gives (``tokenizer.ggml.pre``).

A vocabulary only works with the cut that it was trained with, so a name that is not in `RECIPES` is an error, never a
guess: a wrong cut gives plausible text of lower quality, which would not be noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = "|".join([_CONTRACTIONS, _WORDS, r"\p{N}{1,3}", _REST])
_QWEN2 = "|".join([_CONTRACTIONS, _WORDS, r"\p{N}", _REST])


@dataclass(frozen=True)
class Recipe:
    """What a vocabulary's training fixed: the cut, the normal form, and two habits of the model family."""

    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    ignore_merges: bool = False
    """A piece that is a token as a whole is taken as it is, even if no sequence of merges makes it."""
    add_bos: bool = False
    """Whether a prompt begins with BOS when the file does not say (``tokenizer.ggml.add_bos_token``)."""


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _by_regex(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def build() -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return build


RECIPES = {
    "default": Recipe(_gpt2),
    "gpt-2": Recipe(_gpt2),
    "smollm": Recipe(_single_digits),
    "llama-bpe": Recipe(_by_regex(_LLAMA3), ignore_merges=True, add_bos=True),
    "qwen2": Recipe(_by_regex(_QWEN2), normalizer=normalizers.NFC),
}

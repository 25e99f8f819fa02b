"""The texts of a model's tokens as llguidance looks them up."""

from __future__ import annotations

from pathlib import Path

from llguidance import LLTokenizer, TokenizerWrapper

from shared.vocabulary.token_texts import TokenTexts, read_token_texts


def token_trie(path: Path) -> LLTokenizer:
    """Of a GGUF file or a Hugging Face directory; `ModelFileError` for what cannot be used. It takes some 200 ms.

    Tokens without text are never allowed, but for those that end an answer, where the language may end.
    """
    texts = read_token_texts(path)
    cut = _Cut(texts)
    trie = LLTokenizer(TokenizerWrapper(cut), n_vocab=len(texts.texts), eos_token=list(texts.eos_ids))
    cut.trie = trie
    return trie


class _Cut:
    """What `TokenizerWrapper` asks for: tokens, and how a text is cut into them.

    That is asked only of a client's grammar that wants forced texts at once in spite of ours, so the longest token
    first is good enough.
    """

    trie: LLTokenizer

    def __init__(self, texts: TokenTexts) -> None:
        self.eos_token_id = texts.eos_ids[0]
        self.bos_token_id = None
        self.tokens = texts.texts
        self.special_token_ids: list[int] = []

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self.trie.greedy_tokenize(text)

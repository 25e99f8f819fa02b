from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from gateway.models.tokenizer.known_texts import MAX_TEXT_CHARACTERS, MAX_TEXTS, TextEncoder

VOCABULARY = {chr(97 + number): number for number in range(26)}
LONG = "ab" * MAX_TEXT_CHARACTERS


def letters() -> Tokenizer:
    """A token a letter."""
    return Tokenizer(models.BPE(VOCABULARY, []))


@given(st.lists(st.text("abc", max_size=8), max_size=40))
def test_a_text_has_the_same_tokens_each_time(texts: list[str]) -> None:
    encoder = TextEncoder(letters())
    for text in [*texts, *texts]:
        assert encoder.encode(text) == tuple(VOCABULARY[letter] for letter in text)


def test_more_texts_than_are_remembered_and_longer_ones() -> None:
    encoder = TextEncoder(letters())
    texts = [*("a" * (number % 500) + chr(97 + number % 26) for number in range(2 * MAX_TEXTS)), LONG]
    for text in [*texts, *texts]:
        assert encoder.encode(text) == tuple(VOCABULARY[letter] for letter in text)

"""What a structured output is guessed to go on with, and how likely that is, by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_node.engine.border.grammar import Matcher
from gpu_node.engine.measures.acceptance import PRIOR_RATE, AcceptanceRates
from gpu_node.engine.requests.drafter import Drafter
from gpu_node.engine.requests.language_habits import LanguageHabits
from gpu_node.engine.requests.structured_drafter import StructuredDrafter
from gpu_node.grammars.compiler import GrammarCompiler
from shared.messages.requests.payload import Constraint
from tests.gateway.tiny import HELLO, TOKENS, ids, write_model

READY_S = 30.0
HE, LL = TOKENS.index("he"), TOKENS.index("ll")
MERGED = {TOKENS.index(text) for text in ("he", "ll", "hell", "hello")}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrammarCompiler]:
    """Tokens are bytes, and "he", "ll", "hell", "hello"."""
    made = GrammarCompiler({"tiny": write_model(tmp_path_factory.mktemp("tokens") / "tiny.gguf")}.__getitem__)
    yield made
    made.close()


class Text:
    """An output, its matcher and who guesses it."""

    def __init__(
        self, compiler: GrammarCompiler, regex: str, habits: LanguageHabits | None = None, prompt: str | None = None
    ) -> None:
        grammar = compiler.compile("tiny", Constraint("regex", regex))
        compiler.wait(READY_S)
        self.token_ids = ids(prompt or "")
        self.matcher: Matcher = grammar.matcher()
        copying = None if prompt is None else Drafter(AcceptanceRates())
        self.drafter = StructuredDrafter(self.matcher, habits or LanguageHabits(), AcceptanceRates(), copying)

    def write(self, *token_ids: int) -> None:
        for token_id in token_ids:
            self.token_ids.append(token_id)
            self.matcher.take(token_id)
            self.drafter.take(self.token_ids)

    def guesses(self, most: int = 16) -> list[int]:
        return self.drafter.draft(self.token_ids, most)


def tokens_in(mask: bytes) -> set[int]:
    return {token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1}


def test_what_alone_may_come_is_certain_and_the_end_is_not_guessed(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "[xy]abcd")
    text.write(ord("x"))
    assert text.guesses() == ids("abc"), "a row behind the d could draw nothing"
    assert text.drafter.chances(16) == [1.0, 1.0, 1.0]
    assert [tokens_in(mask) for mask in text.drafter.masks(3)] == [{ord(letter)} for letter in "bcd"]


def test_of_a_text_that_alone_can_follow_the_longest_token_is_guessed_first(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "hello![ab]")
    assert text.guesses() == [HELLO, ord("!")]
    assert text.drafter.chances(16) == [PRIOR_RATE, PRIOR_RATE]  # it begins with h, he, hell or hello


def test_the_second_time_it_is_what_was_drawn(compiler: GrammarCompiler) -> None:
    habits = LanguageHabits()
    Text(compiler, "hello!?", habits).write(HE, LL, ord("o"))
    text = Text(compiler, "hello!?", habits)
    assert text.guesses()[:2] == [HE, LL]
    text.write(HELLO)
    assert Text(compiler, "hello!?", habits).guesses()[0] == HELLO


def test_a_guess_of_what_may_be_several_texts_needs_a_habit(compiler: GrammarCompiler) -> None:
    habits = LanguageHabits()
    text = Text(compiler, "([xyz]-){4}", habits)
    assert not text.drafter.has_guess
    text.write(ord("y"), ord("-"))
    # the places before each letter are alike: all three letters may come
    assert text.guesses(4) == ids("y-y-")
    assert text.drafter.chances(2) == pytest.approx([PRIOR_RATE, PRIOR_RATE])
    assert tokens_in(text.drafter.masks(1)[0]) == {ord("-")}


def test_habits_that_hold_are_believed(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "([xyz]-){40}")
    chances: list[float] = []
    for _ in range(6):
        text.write(ord("y"), ord("-"))
        chances += text.drafter.chances(1)
    assert chances == sorted(chances)
    assert chances[-1] > 0.6
    text.write(ord("z"), ord("-"))
    assert text.drafter.chances(1)[0] < chances[-1]


def test_chances_stop_at_the_least_that_is_wanted(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "([xyz]-){4}")
    text.write(ord("y"), ord("-"))
    assert text.drafter.chances(16, least=0.9) == []
    assert text.drafter.chances(2, least=0.5) == pytest.approx([0.5, 0.5])
    assert text.drafter.chances(16, least=0.3) == pytest.approx([0.5, 0.5])


def test_what_followed_before_is_guessed_as_far_as_the_language_allows_it(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "[0-9]k=[a-z]{9}", prompt="k=abc9")
    text.write(*ids("5k="))
    assert text.guesses() == ids("abc"), "the 9 behind it is no letter"
    assert all(tokens_in(mask) == set(ids("abcdefghijklmnopqrstuvwxyz")) | MERGED for mask in text.drafter.masks(3))


def test_the_likelier_of_both_is_taken(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "[ab]k=x[a-z]{3}", prompt="k=y")
    text.write(*ids("ak="))
    assert text.guesses(1) == [ord("x")], "y followed before; x alone may come"


def test_who_is_whole_guesses_nothing(compiler: GrammarCompiler) -> None:
    text = Text(compiler, "ab")
    text.write(*ids("ab"))
    assert not text.drafter.has_guess
    assert text.guesses() == []
    assert text.drafter.chances(4) == []

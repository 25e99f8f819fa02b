from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.stop_strings import StopMatcher, StopPattern

TEXTS = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def matcher_of(*stops: str) -> StopMatcher:
    return StopMatcher([StopPattern(one) for one in stops])


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition: the first position where a stop string ends, cut before the longest one that ends there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(pieces=st.lists(TEXTS, max_size=10), stops=STOPS)
def test_pieces_give_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    matcher = matcher_of(*stops)
    out, is_stopped = "", False
    for piece in pieces:
        text, is_stopped = matcher.feed(piece)
        out += text
        if is_stopped:
            break
    if not is_stopped:
        out += matcher.flush()
    assert (out, matcher.completed) == naive("".join(pieces), stops)
    assert is_stopped == (matcher.completed is not None)


@given(text=TEXTS, stops=STOPS)
def test_only_a_beginning_of_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = matcher_of(*stops)
    out, is_stopped = matcher.feed(text)
    if not is_stopped:
        beginnings = [stop[:n] for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
        assert text.removeprefix(out) == max(beginnings, key=len, default="")


def test_a_stop_string_over_three_pieces() -> None:
    matcher = matcher_of("\nUser:")
    assert matcher.feed("yes.\n") == ("yes.", False)
    assert matcher.feed("Us") == ("", False)
    assert matcher.feed("er: and") == ("", True)


def test_a_false_beginning_comes_out_when_it_breaks_off() -> None:
    matcher = matcher_of("abac")
    assert matcher.feed("aba") == ("", False)
    assert matcher.feed("b") == ("ab", False)
    assert matcher.flush() == "ab"


def test_without_stop_strings_nothing_is_held_back() -> None:
    assert matcher_of().feed("anything") == ("anything", False)


def test_what_is_known_of_a_stop_string_is_shared_by_all_choices() -> None:
    stops = [CountedPattern("a" * 255 + "b")]
    num_looks = CountedPattern.num_looks
    for _ in range(1024):
        StopMatcher(stops)
    assert CountedPattern.num_looks == num_looks > 0


class CountedPattern(StopPattern):
    """Counts how often a place of it is looked at."""

    num_looks = 0

    def after(self, length: int, character: str) -> int:
        CountedPattern.num_looks += 1
        return super().after(length, character)

"""Stop strings over tokens, against a plain model: an answer ends as a search of its whole text says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.generation import Generation, Verdict
from gateway.generation.stop_strings import StopPattern
from gateway.openai.answers.delta import Delta
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Chunk
from tests.gateway.generation.test_stop_strings import naive

# Whole characters, parts of them, several of them, bytes that are no character at all, and one without text.
VOCABULARY = [
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"\xc3",
    b"\xa9",
    b"a\xc3",
    b"\xa9b",
    "日".encode(),
    b"\xe6\x97",
    b"\xa5",
    b"\xff",
    b"",
]
CHARACTERS = "abé日\ufffd"

TOKENS = st.lists(st.integers(0, len(VOCABULARY)), max_size=40)  # one of them is none of the vocabulary's
STOPS = st.lists(st.text(alphabet=CHARACTERS, min_size=1, max_size=4), max_size=4)
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def answered(token_ids: list[int], stops: list[str], cuts: list[int], resent: int) -> tuple[str, str | None]:
    """The client's text and how it ended. Chunks are as long as ``cuts`` say; every ``resent``-th comes twice."""
    answer = Generation(VOCABULARY, [StopPattern(one) for one in stops], Sampling(max_tokens=1000))
    texts: list[str] = []
    reason: str | None = None
    place = number = 0
    while reason is None:
        size = cuts[number % len(cuts)]
        is_last = place + size >= len(token_ids)
        chunk = Chunk("r", 0, place, token_ids[place : place + size], "length" if is_last else "", is_last=is_last)
        for found in [answer.accept(chunk)] + ([answer.accept(chunk)] if number % resent == 0 else []):
            if isinstance(found, Delta):
                texts.append(found.text)
                reason = reason or found.finish_reason
            else:
                assert found is Verdict.IGNORED
        place, number = place + size, number + 1
    return "".join(texts), reason


@given(token_ids=TOKENS, stops=STOPS, cuts=CUTS, resent=st.integers(1, 5))
def test_tokens_end_where_their_text_does(token_ids: list[int], stops: list[str], cuts: list[int], resent: int) -> None:
    data = b"".join(VOCABULARY[token] if token < len(VOCABULARY) else b"" for token in token_ids)
    text, is_stopped = naive(data.decode(errors="replace"), stops)
    assert answered(token_ids, stops, cuts, resent) == (text, "stop" if is_stopped else "length")

"""Logprobs go out with the text they belong to, neither before it nor without it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.choice import Choice
from gateway.generation.generation import Generation, Verdict
from gateway.generation.stop_strings import StopPattern
from gateway.openai.answers.delta import Delta, Failure, ScoredToken
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Chunk
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gateway.tiny import ids

BYTES = [*[bytes([byte]) for byte in range(256)], b"", b"ab"]
END = 256  # a token without text
AB = 257  # one with two characters
SAMPLING = Sampling(max_tokens=20, num_logprobs=0)


def choice(*stops: str) -> Choice:
    return Choice(0, BYTES, [StopPattern(one) for one in stops], SAMPLING)


def scores(number: int) -> list[TokenLogprob]:
    return [TokenLogprob(-float(place), []) for place in range(number)]


def take(one: Choice, token_ids: list[int], finish_reason: str = "") -> Delta:
    return one.take(token_ids, scores(len(token_ids)), "stop" if finish_reason else None)


def places(delta: Delta) -> list[tuple[int, int]]:
    """Token and offset of all whose logprob goes out."""
    return [(scored.token_id, scored.text_offset) for scored in delta.scored]


def test_each_token_has_its_own_score_and_offset() -> None:
    scores = [TokenLogprob(-1.0, []), TokenLogprob(-2.0, [(3, -0.5)]), TokenLogprob(-3.0, [])]
    delta = choice().take([97, AB, 98], scores, None)
    assert delta.text == "aabb"
    assert delta.scored == (
        ScoredToken(97, 0, TokenLogprob(-1.0, [])),
        ScoredToken(AB, 1, TokenLogprob(-2.0, [(3, -0.5)])),
        ScoredToken(98, 3, TokenLogprob(-3.0, [])),
    )


def test_nobody_asked_nothing_is_held() -> None:
    assert Choice(0, BYTES, [], Sampling(max_tokens=20)).take(ids("ab"), [], None) == Delta("ab", 2)


def test_parts_of_a_character_go_out_with_it() -> None:
    thread = list("🧵".encode())
    one = choice()
    assert take(one, [97, *thread[:2]]) == Delta("a", 3, scored=(ScoredToken(97, 0, TokenLogprob(0.0, [])),))
    assert places(take(one, thread[2:3])) == []
    assert places(take(one, [thread[3], 98])) == [
        (thread[0], 1),
        (thread[1], 1),
        (thread[2], 1),
        (thread[3], 1),
        (98, 2),
    ]


def test_what_may_begin_a_stop_string_is_held_back_with_its_text() -> None:
    one = choice("bc")
    assert places(take(one, ids("ab"))) == [(97, 0)]
    assert places(take(one, ids("x"))) == [(98, 1), (ord("x"), 2)]


def test_a_token_that_is_half_out_waits_for_its_other_half() -> None:
    one = choice("bc")
    delta = take(one, [AB])
    assert (delta.text, delta.scored) == ("a", ())
    assert places(take(one, ids("d"))) == [(AB, 0), (ord("d"), 2)]


def test_of_a_stop_string_only_the_tokens_that_begin_before_it_belong_to_the_answer() -> None:
    delta = take(choice("bc"), [120, AB, 99, 100])
    assert (delta.text, delta.num_tokens, delta.finish_reason) == ("xa", 3, "stop")
    assert places(delta) == [(120, 0), (AB, 1)]


def test_a_token_without_text_goes_out_where_it_stands() -> None:
    assert places(take(choice(), [97, END], "stop")) == [(97, 0), (END, 1)]


def test_all_that_was_held_goes_out_at_the_end() -> None:
    one = choice("bc")
    take(one, [97, 98])
    delta = take(one, [0xF0, END], "stop")
    assert delta.text == "b\ufffd"
    assert places(delta) == [(98, 1), (0xF0, 2), (END, 2)]


def test_of_doubled_tokens_the_new_ones_keep_their_scores() -> None:
    answer = Generation(BYTES, [], SAMPLING)
    answer.accept(Chunk("r", 0, 0, ids("ab"), logprobs=scores(2)))
    news = answer.accept(Chunk("r", 0, 1, ids("bc"), logprobs=[TokenLogprob(-7.0, []), TokenLogprob(-8.0, [])]))
    assert news == Delta("c", 1, scored=(ScoredToken(99, 2, TokenLogprob(-8.0, [])),))
    assert answer.accept(Chunk("r", 0, 1, ids("bc"), logprobs=scores(2))) is Verdict.IGNORED


def test_a_node_that_sends_no_logprobs_has_failed() -> None:
    assert Generation(BYTES, [], SAMPLING).accept(Chunk("r", 0, 0, ids("ab"), logprobs=scores(1))) is Failure.ENGINE


@given(
    token_ids=st.lists(st.sampled_from([97, 98, 99, AB, END, *"é🧵".encode()]), max_size=12),
    stops=st.lists(st.sampled_from(["ab", "abc", "bb", "🧵a", "\ufffd"]), max_size=2, unique=True),
    cuts=st.lists(st.integers(1, 4)),
)
def test_scores_keep_to_their_text_however_it_comes(token_ids: list[int], stops: list[str], cuts: list[int]) -> None:
    one = choice(*stops)
    text, out, num_taken = "", list[tuple[int, int]](), 0
    for size in [*cuts, 20]:
        if one.finish_reason is None:
            part = token_ids[num_taken : num_taken + size]
            num_taken += len(part)
            delta = take(one, part, "stop" if num_taken == len(token_ids) else "")
            text += delta.text
            out += places(delta)
            if one.finish_reason is None:
                begun = b"".join(BYTES[token] for token, _ in out)
                assert text.encode().startswith(begun) or "\ufffd" in text, "the tokens are never ahead of the text"
    assert [token for token, _ in out] == token_ids[: len(out)], "each once, in order, none left out"
    assert [offset for _, offset in out] == sorted(offset for _, offset in out)
    assert all(offset <= len(text) for _, offset in out)
    assert one.finish_reason == "stop"
    if not stops:
        assert len(out) == len(token_ids)

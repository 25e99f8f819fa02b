from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.generation import MAX_CRASHES_IN_ALL, MAX_FRUITLESS_ATTEMPTS, MAX_GIVEN_WAY, Generation, Verdict
from gateway.generation.stop_strings import StopPattern
from gateway.openai.answers.delta import Crashed, Delta, Failure
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import Chunk
from tests.gateway.tiny import ids

BYTES = [bytes([byte]) for byte in range(256)]


def generation(max_tokens: int = 100, stops: list[str] | None = None) -> Generation:
    return Generation(BYTES, [StopPattern(one) for one in stops or []], Sampling(max_tokens=max_tokens))


def chunk(index: int, text: str, finish_reason: str = "", attempt: int = 0) -> Chunk:
    """Of a request with one choice: its end is the last chunk."""
    return Chunk("r", attempt, index, ids(text), finish_reason, is_last=bool(finish_reason))


def test_chunks_in_order_give_their_text() -> None:
    answer = generation()
    assert answer.accept(chunk(0, "ab")) == Delta("ab", 2)
    assert answer.accept(chunk(2, "c", "stop")) == Delta("c", 1, "stop")
    assert answer.ended_by_node
    assert answer.outputs == [Output(ids("abc"), "stop")]


def test_a_doubled_chunk_is_ignored() -> None:
    answer = generation()
    answer.accept(chunk(0, "abc"))
    assert answer.accept(chunk(0, "abc")) is Verdict.IGNORED
    assert answer.accept(chunk(1, "b")) is Verdict.IGNORED


def test_of_an_overlap_the_new_part_is_taken() -> None:
    answer = generation()
    answer.accept(chunk(0, "abc"))
    assert answer.accept(chunk(1, "bcde")) == Delta("de", 2)


def test_an_end_without_tokens_is_taken_where_the_answer_stands() -> None:
    answer = generation()
    answer.accept(chunk(0, "abc"))
    assert answer.accept(chunk(2, "", "stop")) is Verdict.IGNORED
    assert answer.accept(chunk(3, "", "length")) == Delta("", 0, "length")


def test_a_gap_is_noticed_and_nothing_of_it_taken() -> None:
    answer = generation()
    answer.accept(chunk(0, "a"))
    assert answer.accept(chunk(2, "c")) is Verdict.GAP
    assert answer.outputs == [Output(ids("a"))]


def test_only_the_current_attempt_counts() -> None:
    answer = generation()
    answer.accept(chunk(0, "a"))
    answer.begin_attempt(1)
    assert answer.accept(chunk(1, "x")) is Verdict.IGNORED
    assert answer.accept(chunk(1, "b", attempt=1)) == Delta("b", 1)


def test_nothing_is_taken_after_the_end() -> None:
    answer = generation()
    answer.accept(chunk(0, "a", "stop"))
    assert answer.accept(chunk(1, "b")) is Verdict.IGNORED
    assert not answer.may_try_again()


def test_a_character_over_a_chunk_border_waits_for_its_end() -> None:
    thread = "🧵".encode()
    answer = generation()
    assert answer.accept(Chunk("r", 0, 0, list(thread[:3]))) == Delta("", 3)
    assert answer.accept(Chunk("r", 0, 3, [thread[3], *b"!"])) == Delta("🧵!", 2)


def test_a_character_over_an_attempt_border_is_whole_too() -> None:
    thread = "🧵".encode()
    answer = generation()
    answer.accept(Chunk("r", 0, 0, list(thread[:2])))
    answer.begin_attempt(1)
    assert answer.accept(Chunk("r", 1, 2, list(thread[2:]))) == Delta("🧵", 2)


def test_a_stop_string_ends_the_answer_before_it_and_drops_later_tokens() -> None:
    answer = generation(stops=["\nUser"])
    assert answer.accept(chunk(0, "yes\nUs")) == Delta("yes", 6)
    assert answer.accept(chunk(6, "er: more")) == Delta("", 2, "stop", stop_string="\nUser")
    assert answer.outputs == [Output(ids("yes\nUser"), "stop")]
    assert not answer.ended_by_node


def test_what_was_held_back_comes_out_at_the_end() -> None:
    answer = generation(stops=["abc"])
    assert answer.accept(chunk(0, "xab")) == Delta("x", 3)
    assert answer.accept(chunk(3, "", "stop")) == Delta("ab", 0, "stop")


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    answer = generation()
    assert answer.accept(Chunk("r", 0, 0, [0xF0], "length", is_last=True)) == Delta("\ufffd", 1, "length")


def test_a_node_that_does_not_count_is_cut_off() -> None:
    answer = generation(max_tokens=3)
    assert answer.accept(chunk(0, "abcdef")) == Delta("abc", 3, "length")
    assert answer.accept(chunk(3, "def")) is Verdict.IGNORED


def test_a_stop_on_the_last_allowed_token_stays_a_stop() -> None:
    assert generation(max_tokens=3).accept(chunk(0, "abc", "stop")) == Delta("abc", 3, "stop")


def test_an_error_of_the_node_is_a_failure() -> None:
    answer = generation()
    assert answer.accept(chunk(0, "a", "error")) is Failure.ENGINE
    assert answer.ended_by_node


def test_a_failure_ends_the_answer_wherever_the_node_thinks_it_stood() -> None:
    answer = generation()
    answer.accept(chunk(0, "abc"))
    answer.begin_attempt(1)
    assert answer.accept(chunk(0, "", "error", attempt=1)) is Failure.ENGINE
    assert answer.is_over


def test_fruitless_attempts_are_bounded_and_a_token_makes_them_good() -> None:
    answer = generation()
    for attempt in range(1, MAX_FRUITLESS_ATTEMPTS):
        answer.begin_attempt(attempt)
    assert answer.may_try_again()
    answer.accept(chunk(0, "a", attempt=answer.attempt))
    for _ in range(MAX_FRUITLESS_ATTEMPTS):
        assert answer.may_try_again()
        answer.begin_attempt(answer.attempt + 1)
    assert not answer.may_try_again()
    assert answer.give_up() is Failure.LOST


def test_giving_way_is_not_held_against_a_request() -> None:
    answer = generation()
    for attempt in range(1, 2 * MAX_FRUITLESS_ATTEMPTS):
        answer.begin_attempt(attempt, gave_way=True)
    assert answer.may_try_again()


def test_nor_does_it_go_on_for_ever() -> None:
    answer = generation()
    for attempt in range(1, MAX_GIVEN_WAY + 1):
        assert answer.may_try_again(gave_way=True)
        answer.begin_attempt(attempt, gave_way=True)
    assert not answer.may_try_again(gave_way=True)


def test_two_crashes_in_a_row_are_one_too_many_and_a_token_clears_the_suspect() -> None:
    answer = generation()
    assert answer.may_try_again(has_crashed=True)
    answer.begin_attempt(1, has_crashed=True)
    assert not answer.may_try_again(has_crashed=True)
    answer.accept(chunk(0, "a", attempt=1))
    assert answer.num_crashes == 0
    assert answer.may_try_again(has_crashed=True)


def test_crashes_with_tokens_in_between_are_bounded_as_well() -> None:
    answer = generation()
    for attempt in range(1, MAX_CRASHES_IN_ALL):
        assert answer.may_try_again(has_crashed=True)
        answer.begin_attempt(attempt, has_crashed=True)
        answer.accept(chunk(attempt - 1, "a", attempt=attempt))
    assert not answer.may_try_again(has_crashed=True)
    assert answer.crash("r") == Crashed("r", MAX_CRASHES_IN_ALL)
    assert answer.is_over


DISTURBANCES = st.lists(
    st.tuples(st.sampled_from(["chunk", "stale", "lost"]), st.integers(0, 40), st.integers(0, 40)), max_size=12
)


@given(text=st.text(max_size=10), disturbances=DISTURBANCES)
def test_doubled_chunks_and_lost_nodes_change_nothing(text: str, disturbances: list[tuple[str, int, int]]) -> None:
    tokens = ids(text)
    answer = generation(max_tokens=len(tokens) + 1)
    out = ""
    for kind, one, other in [*disturbances, ("chunk", 0, len(tokens))]:
        if kind == "lost" and answer.may_try_again():
            answer.begin_attempt(answer.attempt + 1)
        start, end = (min(place, len(tokens)) for place in sorted((one, other)))
        finish_reason = "stop" if end == len(tokens) else ""
        attempt = answer.attempt - (kind == "stale")
        delta = answer.accept(Chunk("r", attempt, start, tokens[start:end], finish_reason, is_last=bool(finish_reason)))
        out += delta.text if isinstance(delta, Delta) else ""
    assert (out, answer.outputs, answer.is_over) == (text, [Output(tokens, "stop")], True)

"""What the cluster says is delivered in its order, and no portion is more than one round of the loop can take."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.inflight.bus.portions import NEWS_A_ROUND, portions, split_first_tokens
from gateway.inflight.dispatcher import Inbound
from shared.messages.requests.requests import Attempt, Chunk, QueuePlace, QueueStatus, Rejected, Resubmit, Tokens


def tokens(*ids: str, index: int = 0) -> Tokens:
    return Tokens(node="n", chunks=[Chunk(request_id, 0, index, [7]) for request_id in ids])


def names(number: int) -> list[str]:
    return [f"r-{one}" for one in range(number)]


def test_a_few_messages_are_one_portion() -> None:
    rejected = Rejected(request_id="b", attempt=0, wait_s=1.0, retry_after_s=1.0)
    messages: list[Inbound] = [tokens("a", "b"), Resubmit(requests=[Attempt("a", 0)]), rejected]
    assert list(portions(messages)) == [messages]
    assert list(portions([])) == []


def test_a_step_with_more_requests_than_a_round_can_take_is_divided_in_its_order() -> None:
    ids = names(2 * NEWS_A_ROUND + 1)
    found = list(portions([tokens(*ids), tokens("last")]))
    assert found == [
        [tokens(*ids[:NEWS_A_ROUND])],
        [tokens(*ids[NEWS_A_ROUND:-1])],
        [tokens(ids[-1]), tokens("last")],
    ]


def test_each_token_of_a_stream_that_is_behind_counts() -> None:
    behind = [tokens("a", "b", index=step) for step in range(NEWS_A_ROUND)]
    half = NEWS_A_ROUND // 2
    assert list(portions(behind)) == [behind[:half], behind[half:]]


def test_a_portion_is_filled_with_the_beginning_of_the_next_step() -> None:
    ids = names(NEWS_A_ROUND)
    assert list(portions([tokens("first"), tokens(*ids)])) == [
        [tokens("first"), tokens(*ids[:-1])],
        [tokens(ids[-1])],
    ]


def test_places_in_the_queue_count_too() -> None:
    places = [QueuePlace(name, 1, 1.0, 2.0) for name in names(NEWS_A_ROUND)]
    status = QueueStatus(lines=[], places=places)
    assert list(portions([status, tokens("a")])) == [[status], [tokens("a")]]


def test_first_tokens_leave_what_others_go_on_with_behind() -> None:
    resubmit = Resubmit(requests=[Attempt("old", 0)])
    step = Tokens(node="n", chunks=[Chunk("old", 0, 9, [7]), Chunk("new", 0, 0, [7]), Chunk("older", 0, 99, [7])])
    first, rest = split_first_tokens([tokens("old", index=8), resubmit, step, tokens("newer")])
    assert first == [tokens("new"), tokens("newer")]
    assert rest == [
        tokens("old", index=8),
        resubmit,
        Tokens(node="n", chunks=[Chunk("old", 0, 9, [7]), Chunk("older", 0, 99, [7])]),
    ]


def test_a_first_token_that_is_an_end_stays_behind_the_ends_of_other_choices() -> None:
    one_ends = Chunk("a", 0, 5, [7], "length")
    other_ends = Chunk("a", 0, 0, [7], "stop", choice=1, is_last=True)
    step: list[Inbound] = [Tokens(node="n", chunks=[one_ends, other_ends])]
    assert split_first_tokens(step) == ([], step)


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4), max_size=6))
def test_each_stream_has_all_its_tokens_in_their_order(steps: list[list[tuple[str, bool]]]) -> None:
    num_before = Counter[str]()
    messages: list[Inbound] = []
    for step in steps:
        chunks = []
        for name, is_end in step:
            chunks.append(Chunk(name, 0, num_before[name], [7], "length" if is_end else "", is_last=is_end))
            num_before[name] += 1
        messages.append(Tokens(node="n", chunks=chunks))
    first, rest = split_first_tokens(messages)
    assert all(chunk.index == 0 for chunk in chunks_of(first))
    for name, num in num_before.items():
        found = [chunk.index for chunk in chunks_of([*first, *rest]) if chunk.request_id == name]
        assert found == [*range(num)]


def chunks_of(messages: list[Inbound]) -> list[Chunk]:
    return [chunk for message in messages if isinstance(message, Tokens) for chunk in message.chunks]

"""What the cluster says is delivered in its order, and no portion is more than one round of the loop can take."""

from __future__ import annotations

from gateway.inflight.dispatcher import Inbound
from gateway.inflight.portions import NEWS_A_ROUND, portions
from shared.messages.requests import Attempt, Chunk, QueuePlace, QueueStatus, Rejected, Resubmit, Tokens


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

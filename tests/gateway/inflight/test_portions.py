"""What the cluster says is delivered in its order, and no portion wakes more than one round of the loop can run."""

from __future__ import annotations

from gateway.inflight.dispatcher import Inbound
from gateway.inflight.portions import CHUNKS_A_ROUND, WOKEN_A_ROUND, portions
from shared.messages.requests import Attempt, Chunk, Rejected, Resubmit, Tokens


def tokens(*ids: str, index: int = 0) -> Tokens:
    return Tokens(node="n", chunks=[Chunk(request_id, 0, index, [7]) for request_id in ids])


def names(number: int) -> list[str]:
    return [f"r-{one}" for one in range(number)]


def test_a_few_messages_are_one_portion() -> None:
    rejected = Rejected(request_id="b", attempt=0, wait_s=1.0, retry_after_s=1.0)
    messages: list[Inbound] = [tokens("a", "b"), Resubmit(requests=[Attempt("a", 0)]), rejected]
    assert list(portions(messages)) == [messages]
    assert list(portions([])) == []


def test_a_step_with_more_requests_than_a_round_can_wake_is_divided_in_its_order() -> None:
    ids = names(2 * WOKEN_A_ROUND + 1)
    found = list(portions([tokens(*ids), tokens("last")]))
    assert found == [
        [tokens(*ids[:WOKEN_A_ROUND])],
        [tokens(*ids[WOKEN_A_ROUND:-1])],
        [tokens(ids[-1]), tokens("last")],
    ]


def test_requests_that_are_woken_once_count_once() -> None:
    behind = [tokens("a", "b", index=step) for step in range(CHUNKS_A_ROUND // 2)]
    assert list(portions(behind)) == [behind], "a stream that is behind gets all its tokens in one piece"
    assert [len(one) for one in portions([*behind, *behind])] == [len(behind)] * 2


def test_steps_of_several_nodes_wake_no_more_than_a_round_can_run() -> None:
    half = WOKEN_A_ROUND // 2
    steps = [tokens(*(f"{node}-{name}" for name in names(half))) for node in range(5)]
    assert list(portions(steps)) == [steps[:2], steps[2:4], steps[4:]]

"""The wait of tokens for the next ones of their answers: a full core doubles it, time to spare halves it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.inflight.calls.call import InflightCall
from gateway.inflight.calls.job import Job
from gateway.inflight.coalescing import FIRST_WAIT_S, FULL_SHARE, LOOK_S, SPARE_SHARE, Coalescing
from gateway.inflight.dispatcher import Dispatcher
from gateway.models.models import ServedModel
from gateway.openai.answers.delta import Delta, End
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Chunk, Tokens
from shared.messages.requests.slo import Slo
from tests.gateway.memory_queue import WAIT_S, MemoryQueue
from tests.gateway.tiny import ids

LEAST, MAX_S = FIRST_WAIT_S, 4 * FIRST_WAIT_S


def test_it_doubles_on_a_full_core_up_to_its_bound_stays_between_and_is_gone_when_there_is_time() -> None:
    coalescing, now_s, worked_s, waits = Coalescing(MAX_S), 0.0, 0.0, list[float]()
    for share in (0.5, 0.95, 0.95, 0.95, 0.95, 0.8, 0.5, 0.5, 0.5, 0.5):
        now_s, worked_s = now_s + LOOK_S, worked_s + share * LOOK_S
        coalescing.look(now_s, worked_s)
        waits.append(coalescing.wait_s)
    assert waits == [0, LEAST, 2 * LEAST, 4 * LEAST, 4 * LEAST, 4 * LEAST, 2 * LEAST, LEAST, 0, 0]


def test_it_looks_no_more_often_than_it_must_and_never_where_no_token_may_wait() -> None:
    coalescing = Coalescing(MAX_S)
    assert not coalescing.is_due(0.99 * LOOK_S)
    assert coalescing.is_due(LOOK_S)
    coalescing.look(LOOK_S, 0.0)
    assert not coalescing.is_due(1.99 * LOOK_S)
    assert not Coalescing(0.0).is_due(100.0)


def test_a_bound_below_the_first_wait_is_kept() -> None:
    coalescing = Coalescing(FIRST_WAIT_S / 2)
    coalescing.look(LOOK_S, LOOK_S)
    assert coalescing.wait_s == FIRST_WAIT_S / 2


@given(other=st.floats(0, 2), writes=st.floats(0, 2))
def test_under_a_constant_load_it_does_not_swing(other: float, writes: float) -> None:
    """``other``: work of a second without writes; ``writes``: the work of all writes where no token waits.

    Writes are half of the work at most. With the wait k times the shortest, they are a k-th.
    """
    writes, coalescing, now_s, worked_s, waits = min(writes, other), Coalescing(MAX_S), 0.0, 0.0, list[float]()
    for _ in range(20):
        times = max(coalescing.wait_s / FIRST_WAIT_S, 1.0)
        now_s, worked_s = now_s + LOOK_S, worked_s + LOOK_S * min(other + writes / times, 1.0)
        coalescing.look(now_s, worked_s)
        waits.append(coalescing.wait_s)
    assert waits == sorted(waits), "it never goes back"


def test_the_bounds_leave_room_for_one_halving() -> None:
    assert pytest.approx(FULL_SHARE) == 1.5 * SPARE_SHARE


class FullCore(Coalescing):
    """Of a core that never has time to spare."""

    def __init__(self) -> None:
        super().__init__(WAIT_S)
        self.wait_s = FIRST_WAIT_S

    def is_due(self, now_s: float) -> bool:
        return False


async def first_of(call: InflightCall) -> list[Delta]:
    news = await call.next_news(WAIT_S)
    assert isinstance(news, list)
    return news


@pytest.mark.parametrize(
    ("coalescing", "expected"),
    [(Coalescing(0.0), ["b", "c", "d", "e"]), (FullCore(), ["bcd", "e"])],
    ids=["off", "full"],
)
async def test_an_answer_is_the_same_in_fewer_pieces(
    coalescing: Coalescing, expected: list[str], tiny: ServedModel
) -> None:
    job = Job(
        request_id="r",
        model="tiny",
        prompt_token_ids=ids("x"),
        sampling=Sampling(max_tokens=5),
        stops=[],
        token_bytes=tiny.tokenizer.token_bytes,
        slo=Slo(name="interactive", deadline_s=20),
        tenant="acme",
    )
    dispatcher, pieces, has_come = Dispatcher(MemoryQueue(), "gateway-0", coalescing), list[str](), asyncio.Event()

    def take(news: list[Delta] | End, _: float) -> bool:
        assert isinstance(news, list)
        pieces.extend(delta.text for delta in news)
        has_come.set()
        return True

    async def deliver(index: int, text: str) -> None:
        chunk = Chunk("r", 0, index, ids(text), "length" if index == 4 else "", is_last=index == 4)
        await dispatcher.deliver(Tokens(node="node-0", chunks=[chunk]))
        await asyncio.sleep(0)

    async with dispatcher.run(job) as call:
        await deliver(0, "a")
        assert [delta.text for delta in await first_of(call)] == ["a"], "at once, whatever the core does"
        passing = asyncio.create_task(call.pass_on(take, WAIT_S))
        await asyncio.sleep(0)
        for index, text in enumerate("bcd", 1):
            await deliver(index, text)
        await asyncio.wait_for(has_come.wait(), WAIT_S)
        await deliver(4, "e")
        assert pieces == expected, "the last one waits for nothing"
        assert await passing
    assert dispatcher.num_held_writes == (0 if len(expected) == 4 else 1)

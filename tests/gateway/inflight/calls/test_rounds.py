from __future__ import annotations

import asyncio
from functools import partial

from gateway.inflight.calls.rounds import DUE_A_ROUND, Rounds
from gateway.inflight.coalescing import FIRST_WAIT_S, LOOK_S, Coalescing


async def test_what_comes_in_one_round_is_done_in_the_next_in_its_order() -> None:
    rounds, done = Rounds(Coalescing(0.0)), list[str]()
    rounds.add(lambda _: done.append("a"), may_wait=True)
    rounds.add(lambda _: done.append("b"), may_wait=True)
    assert done == []
    await asyncio.sleep(0)
    assert done == ["a", "b"]


async def test_what_is_added_by_what_is_done_has_the_round_behind() -> None:
    rounds, done = Rounds(Coalescing(0.0)), list[str]()

    def first(_: float) -> None:
        done.append("first")
        rounds.add(lambda _: done.append("second"), may_wait=True)

    rounds.add(first, may_wait=True)
    await asyncio.sleep(0)
    assert done == ["first"]
    await asyncio.sleep(0)
    assert done == ["first", "second"]


async def test_all_of_a_round_are_told_one_time() -> None:
    rounds, times = Rounds(Coalescing(0.0)), list[float]()
    before_s = asyncio.get_running_loop().time()
    rounds.add(times.append, may_wait=True)
    rounds.add(times.append, may_wait=True)
    await asyncio.sleep(0)
    assert times[0] == times[1] >= before_s


async def test_what_is_too_much_for_a_round_goes_on_in_the_next_before_what_is_added() -> None:
    rounds, done = Rounds(Coalescing(0.0)), list[int]()

    def note(number: int, _: float) -> None:
        done.append(number)

    for number in range(2 * DUE_A_ROUND + 1):
        rounds.add(partial(note, number), may_wait=True)
    await asyncio.sleep(0)
    assert done == [*range(DUE_A_ROUND)]
    rounds.add(partial(note, -1), may_wait=True)
    await asyncio.sleep(0)
    assert done == [*range(2 * DUE_A_ROUND)]
    await asyncio.sleep(0)
    assert done == [*range(2 * DUE_A_ROUND + 1), -1]


async def test_on_a_full_core_what_may_wait_is_held_and_what_may_not_overtakes_it() -> None:
    coalescing, done = Coalescing(FIRST_WAIT_S), list[str]()
    coalescing.look(LOOK_S, LOOK_S)
    rounds, both = Rounds(coalescing, worked_s=lambda: 0.0), asyncio.Event()
    rounds.add(lambda _: done.append("token"), may_wait=True)
    rounds.add(lambda _: both.set(), may_wait=True)
    rounds.add(lambda _: done.append("last token"), may_wait=False)
    await asyncio.sleep(0)
    assert done == ["last token"]
    await both.wait()
    assert done == ["last token", "token"]
    assert rounds.num_held == 2


async def test_rounds_look_at_the_core_themselves() -> None:
    coalescing, worked_s = Coalescing(1.0), iter([0.0, 1e9])
    rounds = Rounds(coalescing, worked_s=lambda: next(worked_s))
    coalescing.look(asyncio.get_running_loop().time() - 2 * LOOK_S, 0.0)  # idle since the world began
    assert coalescing.wait_s == 0.0
    rounds.add(lambda _: None, may_wait=True)
    await asyncio.sleep(0)
    assert coalescing.wait_s == 0.0, "no work for two looks"
    coalescing.look(asyncio.get_running_loop().time() - 2 * LOOK_S, 0.0)
    rounds.add(lambda _: None, may_wait=True)
    await asyncio.sleep(0)
    assert coalescing.wait_s == FIRST_WAIT_S

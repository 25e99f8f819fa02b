from __future__ import annotations

import asyncio
from functools import partial

from gateway.inflight.calls.rounds import DUE_A_ROUND, Rounds


async def test_what_comes_in_one_round_is_done_in_the_next_in_its_order() -> None:
    rounds, done = Rounds(), list[str]()
    rounds.add(lambda _: done.append("a"))
    rounds.add(lambda _: done.append("b"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["a", "b"]


async def test_what_is_added_by_what_is_done_has_the_round_behind() -> None:
    rounds, done = Rounds(), list[str]()

    def first(_: float) -> None:
        done.append("first")
        rounds.add(lambda _: done.append("second"))

    rounds.add(first)
    await asyncio.sleep(0)
    assert done == ["first"]
    await asyncio.sleep(0)
    assert done == ["first", "second"]


async def test_all_of_a_round_are_told_one_time() -> None:
    rounds, times = Rounds(), list[float]()
    before_s = asyncio.get_running_loop().time()
    rounds.add(times.append)
    rounds.add(times.append)
    await asyncio.sleep(0)
    assert times[0] == times[1] >= before_s


async def test_what_is_too_much_for_a_round_goes_on_in_the_next_before_what_is_added() -> None:
    rounds, done = Rounds(), list[int]()

    def note(number: int, _: float) -> None:
        done.append(number)

    for number in range(2 * DUE_A_ROUND + 1):
        rounds.add(partial(note, number))
    await asyncio.sleep(0)
    assert done == [*range(DUE_A_ROUND)]
    rounds.add(partial(note, -1))
    await asyncio.sleep(0)
    assert done == [*range(2 * DUE_A_ROUND)]
    await asyncio.sleep(0)
    assert done == [*range(2 * DUE_A_ROUND + 1), -1]

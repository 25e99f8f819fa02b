"""Requests are prepared a few at a time, the tenants by turns; who leaves takes nobody's turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from gateway.tenants.turn_threads import TurnThreads


@pytest.fixture
def threads() -> Iterator[TurnThreads]:
    made = TurnThreads(1, "tests")
    yield made
    made.close()


class Work:
    """What was done, in its order; the first waits until it may end."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.may_end = threading.Event()
        self.has_begun = threading.Event()

    def first(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(10.0)

    def named(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.done.append(name)
            return name

        return work


async def test_another_tenant_s_text_is_the_next_but_the_one_that_is_at_work(threads: TurnThreads) -> None:
    work = Work()
    first = asyncio.create_task(threads.run("crowd", work.first))
    crowd = [asyncio.create_task(threads.run("crowd", work.named(f"c{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    lonely = asyncio.create_task(threads.run("lonely", work.named("lonely")))
    await asyncio.to_thread(work.has_begun.wait)
    work.may_end.set()
    assert await asyncio.gather(first, *crowd, lonely) == [None, "c0", "c1", "c2", "lonely"]
    assert work.done == ["c0", "lonely", "c1", "c2"]


async def test_who_leaves_takes_nobody_s_turn(threads: TurnThreads) -> None:
    work = Work()
    first = asyncio.create_task(threads.run("a", work.first))
    waiting = [asyncio.create_task(threads.run("a", work.named(name))) for name in ("x", "y", "z")]
    await asyncio.to_thread(work.has_begun.wait)
    waiting[0].cancel()
    first.cancel()  # its thread goes on, and is taken until it ends
    await asyncio.wait([first, waiting[0]])
    assert work.done == []
    work.may_end.set()
    assert await asyncio.gather(*waiting[1:]) == ["y", "z"]
    assert await threads.run("b", work.named("b")) == "b"
    assert work.done == ["y", "z", "b"]


async def test_who_is_cancelled_as_its_turn_comes_gives_it_on(threads: TurnThreads) -> None:
    """Whatever the loop does first: the end of the text that is at work, or the cancellation."""
    for num_rounds in range(6):
        work = Work()
        first = asyncio.create_task(threads.run("a", work.first))
        second = asyncio.create_task(threads.run("a", work.named("second")))
        third = asyncio.create_task(threads.run("a", work.named("third")))
        await asyncio.to_thread(work.has_begun.wait)
        work.may_end.set()
        await first
        for _ in range(num_rounds):
            await asyncio.sleep(0)
        second.cancel()
        assert await third == "third"


async def test_what_it_raises_is_told(threads: TurnThreads) -> None:
    def fails() -> None:
        raise ValueError("no such token")

    with pytest.raises(ValueError, match="no such token"):
        await threads.run("a", fails)
    assert await threads.run("a", Work().named("next")) == "next"

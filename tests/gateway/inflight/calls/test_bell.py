from __future__ import annotations

import asyncio
import weakref

from gateway.inflight.calls.bell import Bell

SOON_S = 0.01
LATE_S = 5.0


async def test_a_ring_before_the_wait_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert await bell.wait(LATE_S)
    assert not await bell.wait(0.0)


async def test_a_ring_during_the_wait_ends_it() -> None:
    bell = Bell()
    asyncio.get_running_loop().call_soon(bell.ring)
    assert await bell.wait(LATE_S)


async def test_each_wait_has_its_own_limit_whatever_those_before_had() -> None:
    bell = Bell()
    bell.ring()
    assert await bell.wait(LATE_S)
    assert not await bell.wait(SOON_S)
    asyncio.get_running_loop().call_later(2 * SOON_S, bell.ring)
    assert await bell.wait(LATE_S)
    bell.close()


async def test_a_limit_that_is_put_off_holds_from_then_on() -> None:
    bell = Bell()
    loop = asyncio.get_running_loop()
    loop.call_soon(bell.put_off, loop.time() + LATE_S)
    loop.call_later(3 * SOON_S, bell.ring)
    assert await bell.wait(SOON_S)
    bell.close()


async def test_a_wait_that_is_cancelled_leaves_a_bell_for_the_next() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait(LATE_S))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    bell.ring()
    assert await bell.wait(LATE_S)
    bell.close()


async def test_a_closed_bell_is_held_by_nobody() -> None:
    bell = Bell()
    asyncio.get_running_loop().call_soon(bell.ring)
    assert await bell.wait(LATE_S)
    bell.close()
    seen = weakref.ref(bell)
    del bell
    assert seen() is None

"""Ending background tasks for certain, even one that overhears the first request to end."""

from __future__ import annotations

import asyncio

from shared.service.background.tasks import cancel_all


async def deaf(num_unheard: int, began: asyncio.Event) -> None:
    while True:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not num_unheard:
                raise
            num_unheard -= 1


async def failing(began: asyncio.Event) -> None:
    try:
        began.set()
        await asyncio.Event().wait()
    finally:
        raise ValueError("while ending")


async def done(began: asyncio.Event) -> None:
    began.set()


async def test_all_have_ended_whatever_they_do() -> None:
    begun = [asyncio.Event() for _ in range(4)]
    work = [deaf(0, begun[0]), deaf(2, begun[1]), failing(begun[2]), done(begun[3])]
    tasks = [asyncio.create_task(one) for one in work]
    for event in begun:
        await event.wait()
    await cancel_all(tasks)
    assert [task.done() for task in tasks] == [True] * 4
    assert [task.cancelled() for task in tasks] == [True, True, False, False]


async def test_nothing_to_end_is_fine() -> None:
    await cancel_all([])

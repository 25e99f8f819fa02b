"""A few requests a round of the loop, in their order; who leaves takes nobody's turn."""

from __future__ import annotations

import asyncio

from gateway.tenants.turnstile import Turnstile
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.memory_queue import saying

TEXT = "/v1/completions"


class Rounds:
    """Which requests passed in which round of the loop."""

    def __init__(self, limit: int) -> None:
        self.turnstile = Turnstile(limit)
        self.passed: list[list[int]] = [[]]

    async def request(self, number: int, tenant: str = "acme") -> None:
        await self.turnstile.turn(tenant)
        self.passed[-1].append(number)

    async def run(self, num_rounds: int) -> list[list[int]]:
        for _ in range(num_rounds):
            await asyncio.sleep(0)
            self.passed.append([])
        return [one for one in self.passed if one]


async def test_a_crowd_passes_in_its_order_a_few_a_round() -> None:
    rounds = Rounds(limit=2)
    tasks = [asyncio.create_task(rounds.request(number)) for number in range(7)]
    passed = await rounds.run(12)
    assert [number for one in passed for number in one] == list(range(7))
    assert max(len(one) for one in passed) == 2
    assert all(task.done() for task in tasks)
    assert rounds.turnstile.num_waiting == 0


async def test_a_round_that_makes_way_for_newcomers_lets_few_through() -> None:
    rounds = Rounds(limit=16)
    tasks = [asyncio.create_task(rounds.request(number)) for number in range(40)]
    rounds.turnstile.make_way()
    await rounds.run(1)
    rounds.turnstile.make_way()
    await rounds.run(5)
    assert [len(one) for one in rounds.passed if one] == [16, 2, 2, 16, 4]
    await asyncio.gather(*tasks)


async def test_one_that_comes_alone_does_not_wait() -> None:
    rounds = Rounds(limit=1)
    for number in range(3):
        await rounds.request(number)
        assert rounds.passed[-1] == [number]
        await rounds.run(2)


async def test_nobody_who_comes_later_goes_ahead_of_those_who_wait() -> None:
    rounds = Rounds(limit=1)
    early = [asyncio.create_task(rounds.request(number)) for number in range(3)]
    await rounds.run(2)
    late = asyncio.create_task(rounds.request(3))
    assert [number for one in await rounds.run(8) for number in one] == [0, 1, 2, 3]
    await asyncio.gather(*early, late)


async def test_a_tenant_s_crowd_waits_behind_itself() -> None:
    rounds = Rounds(limit=1)
    tasks = [asyncio.create_task(rounds.request(number, "crowd")) for number in range(5)]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(rounds.request(number, tenant)) for number, tenant in ((5, "b"), (6, "c"), (7, "b"))]
    await asyncio.sleep(0)
    assert [number for one in await rounds.run(12) for number in one] == [0, 1, 2, 5, 6, 3, 7, 4]
    await asyncio.gather(*tasks)


async def test_who_leaves_takes_nobody_s_turn() -> None:
    rounds = Rounds(limit=1)
    tasks = [asyncio.create_task(rounds.request(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert rounds.turnstile.num_waiting == 4
    for number in (1, 2, 3):
        tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for one in rounds.passed for number in one] == [0, 4]


async def test_who_leaves_when_its_turn_has_come_does_not_stop_the_others() -> None:
    rounds = Rounds(limit=1)
    tasks = [asyncio.create_task(rounds.request(number)) for number in range(3)]
    await asyncio.sleep(0)  # the first passes, and the second's turn comes with the next round
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for one in rounds.passed for number in one] == [0, 2]


async def test_a_request_that_is_too_many_is_refused_before_its_body_and_without_waiting(
    start_gateway: GatewayFactory,
) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 1})
    async with sending(gateway.http.post(TEXT, json={"model": "tiny", "prompt": "x"})):
        await gateway.queue.next_submit()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")  # and no body
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nRetry-After: 1\r\n" in head


async def test_all_of_a_crowd_are_answered(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))

    async def ask(number: int) -> str:
        answer = await gateway.openai.completions.create(model="tiny", prompt=f"{number}")
        return answer.choices[0].text

    assert await asyncio.gather(*(ask(number) for number in range(100))) == ["a"] * 100

"""The queue is told of every request that is over: behind its submit, and as soon as the queue is back."""

from __future__ import annotations

import asyncio

import pytest

from gateway.inflight.calls.job import Job
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.inflight.releases import Releases
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt, Resubmit, Submit
from shared.messages.requests.slo import Slo
from tests.gateway.memory_queue import WAIT_S, MemoryQueue

JOB = Job(
    request_id="r",
    model="m",
    prompt_token_ids=[1],
    sampling=Sampling(max_tokens=4),
    stops=[],
    token_bytes=[b"a"],
    slo=Slo(name="interactive", deadline_s=20.0),
    tenant="default",
)


class SlowQueue(MemoryQueue):
    """A submit is on its way until it is let through; its answer may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.is_under_way = asyncio.Event()
        self.is_let_through = asyncio.Event()
        self.is_answer_lost = False
        self.told: list[str] = []

    async def submit(self, payload: Payload, submit: Submit) -> None:
        self.is_under_way.set()
        await self.is_let_through.wait()
        self.told.append("submit")
        await super().submit(payload, submit)
        if self.is_answer_lost:
            raise QueueUnavailableError("no answer in time")

    async def cancel(self, request_id: str) -> None:
        await super().cancel(request_id)
        self.told.append("cancel")


async def test_the_cancel_of_a_client_that_leaves_comes_behind_its_submit() -> None:
    queue = SlowQueue()
    dispatcher = Dispatcher(queue, "gw-0")

    async def serve() -> None:
        async with dispatcher.run(JOB):
            raise AssertionError("the client has left before")

    client = asyncio.create_task(serve())
    await queue.is_under_way.wait()
    client.cancel()
    asyncio.get_running_loop().call_soon(queue.is_let_through.set)
    with pytest.raises(asyncio.CancelledError):
        await client
    await dispatcher.drain()
    assert queue.told == ["submit", "cancel"]
    assert queue.payloads == {}


@pytest.mark.slow  # five seconds pass
async def test_a_submit_whose_end_is_not_known_is_cancelled_twice() -> None:
    queue = SlowQueue()
    queue.is_let_through.set()
    queue.is_answer_lost = True
    dispatcher = Dispatcher(queue, "gw-0")
    with pytest.raises(QueueUnavailableError):
        async with dispatcher.run(JOB):
            raise AssertionError("it was not submitted")
    await dispatcher.drain()
    assert queue.told == ["submit", "cancel", "cancel"], "the second comes when the submit has come for certain"


@pytest.mark.slow  # five seconds pass
async def test_a_further_attempt_whose_end_is_not_known_is_cancelled_behind_the_end_of_its_request() -> None:
    queue = SlowQueue()
    queue.is_let_through.set()
    dispatcher = Dispatcher(queue, "gw-0")
    async with dispatcher.run(JOB):
        queue.is_answer_lost = True
        with pytest.raises(QueueUnavailableError):
            await dispatcher.deliver(Resubmit(requests=[Attempt("r", 0)]))
        queue.is_answer_lost = False
        await dispatcher.deliver(Resubmit(requests=[Attempt("r", 0)]))
    await dispatcher.drain()
    assert queue.told == ["submit", "submit", "submit", "cancel", "cancel"]


async def test_a_queue_that_is_back_is_told_of_what_was_over_meanwhile() -> None:
    queue = MemoryQueue()
    queue.is_down = True
    releases = Releases(queue)
    await releases.tell("a", ended_by_node=False)
    await releases.tell("b", ended_by_node=True)
    assert (queue.cancels.empty(), queue.finishes.empty()) == (True, True)
    queue.is_down = False
    assert await asyncio.wait_for(queue.next_cancel(), WAIT_S) == "a"
    assert await asyncio.wait_for(queue.next_finish(), WAIT_S) == "b"
    await releases.drain()


async def test_thousands_that_could_not_be_told_are_all_told_when_the_queue_is_back() -> None:
    queue = MemoryQueue()
    releases = Releases(queue)
    queue.is_down = True
    names = [f"r-{number}" for number in range(1_000)]
    for name in names:
        await releases.tell(name, ended_by_node=False)
    assert queue.cancels.empty()
    queue.is_down = False
    await releases.drain()
    assert [queue.cancels.get_nowait() for _ in range(queue.cancels.qsize())] == names, "each once, oldest first"

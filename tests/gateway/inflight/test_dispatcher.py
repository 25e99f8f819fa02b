from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from gateway.generation.generation import MAX_FRUITLESS_ATTEMPTS
from gateway.inflight.calls.job import Job
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.models.models import ServedModel
from gateway.openai.answers.delta import Delta, Failure, Rejection
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import (
    Attempt,
    Chunk,
    QueuePlace,
    QueueStatus,
    Rejected,
    Resubmit,
    Submit,
    Tokens,
)
from shared.messages.requests.slo import Slo
from tests.gateway.memory_queue import MemoryQueue
from tests.gateway.tiny import ids

SLO = Slo(name="interactive", deadline_s=20)
WAIT_S = 5.0
TRACEPARENT = f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue()


@pytest.fixture
def dispatcher(queue: MemoryQueue) -> Dispatcher:
    return Dispatcher(queue, "gateway-0")


@pytest.fixture
def job(tiny: ServedModel) -> Job:
    return Job(
        request_id="r",
        model="tiny",
        prompt_token_ids=ids("prompt"),
        sampling=Sampling(max_tokens=10, seed=7),
        stops=[],
        token_bytes=tiny.tokenizer.token_bytes,
        slo=SLO,
        tenant="acme",
        span=NonRecordingSpan(SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False, trace_flags=TraceFlags(1))),
    )


def tokens(index: int, text: str, finish_reason: str = "", *, attempt: int = 0, request_id: str = "r") -> Tokens:
    chunk = Chunk(request_id, attempt, index, ids(text), finish_reason, is_last=bool(finish_reason))
    return Tokens(node="node-0", chunks=[chunk])


def lost(attempt: int, request_id: str = "r") -> Resubmit:
    return Resubmit(requests=[Attempt(request_id, attempt)])


async def test_a_job_becomes_a_payload_and_a_submit(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job):
        assert await queue.next_submit() == Submit(
            request_id="r",
            gateway="gateway-0",
            model="tiny",
            slo=SLO,
            prompt_tokens=6,
            max_tokens=10,
            tenant="acme",
            traceparent=TRACEPARENT,
        )
        assert queue.payloads["r"] == Payload(
            request_id="r",
            attempt=0,
            gateway="gateway-0",
            model="tiny",
            prompt_token_ids=ids("prompt"),
            sampling=job.sampling,
            traceparent=TRACEPARENT,
            due_s=20.0,
        )


async def test_what_is_complete_is_finished_and_forgotten(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        assert dispatcher.num_inflight == 1
        await dispatcher.deliver(tokens(0, "ab", "stop"))
        assert await call.next_news(WAIT_S) == [Delta("ab", 2, "stop")]
    assert dispatcher.num_inflight == 0
    assert await queue.next_finish() == "r"
    assert (queue.payloads, queue.cancels.qsize()) == ({}, 0)


async def test_who_waits_for_the_whole_answer_is_woken_by_its_end_only(dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        waiting = asyncio.create_task(call.until_whole(WAIT_S))
        await asyncio.sleep(0)
        await dispatcher.deliver(tokens(0, "ab"))
        await dispatcher.deliver(tokens(2, "c"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (waiting.done(), call.num_untold) == (False, 2)
        await dispatcher.deliver(tokens(3, "d", "stop"))
        assert await waiting
        assert call.all_news() == [Delta("abcd", 4, "stop")]
        assert call.is_complete
        assert await call.until_whole(0.0), "at once, when it is there"


async def test_the_whole_answer_is_waited_for_no_longer_than_was_said(dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        await dispatcher.deliver(tokens(0, "ab"))
        assert await call.next_news(WAIT_S) == [Delta("ab", 2)]
        assert not await call.until_whole(0.0)


async def test_who_waits_for_a_whole_answer_hears_that_there_is_none(dispatcher: Dispatcher, job: Job) -> None:
    """Of two prompts: one fails, the other still runs."""
    async with dispatcher.run(job, replace(job, request_id="s")) as call:
        waiting = asyncio.create_task(call.until_whole(WAIT_S))
        await asyncio.sleep(0)
        await dispatcher.deliver(tokens(0, "", "error"))
        assert await waiting
        assert call.all_news() is Failure.ENGINE


async def test_what_is_left_early_is_cancelled(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job):
        await dispatcher.deliver(tokens(0, "ab"))
    assert await queue.next_cancel() == "r"
    assert queue.payloads == {}


async def test_a_handler_that_is_cancelled_cancels_its_request(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    async def handle() -> None:
        async with dispatcher.run(job) as call:
            await call.next_news(WAIT_S)

    handler = asyncio.create_task(handle())
    await queue.next_submit()
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert await queue.next_cancel() == "r"


async def test_a_lost_attempt_is_submitted_again_with_what_the_client_has(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    async with dispatcher.run(job) as call:
        await dispatcher.deliver(tokens(0, "abc"))
        first = await queue.next_submit()
        await dispatcher.deliver(lost(attempt=0))
        second = await queue.next_submit()
        assert (first.attempt, first.prompt_tokens, first.max_tokens) == (0, 6, 10)
        assert (second.attempt, second.prompt_tokens, second.max_tokens) == (1, 9, 7)
        payload = queue.payloads["r"]
        assert (payload.attempt, payload.prompt_token_ids, payload.outputs) == (1, ids("prompt"), [Output(ids("abc"))])
        assert payload.sampling == job.sampling
        await dispatcher.deliver(tokens(3, "OLD", attempt=0))
        await dispatcher.deliver(tokens(3, "de", "stop", attempt=1))
        assert await call.next_news(WAIT_S) == [Delta("abcde", 5, "stop")]


@pytest.mark.parametrize(
    ("sampling", "outputs", "work"),
    [
        (Sampling(max_tokens=10, num_choices=3, num_candidates=3), [], (6, 30)),
        (Sampling(max_tokens=10, num_choices=2, num_candidates=5), [], (6, 50)),
        (Sampling(max_tokens=10, num_choices=2, num_candidates=4, is_beam=True), [], (6, 40)),
        (
            Sampling(max_tokens=10, num_choices=3, num_candidates=3),
            [Output([1, 2]), Output([3, 4, 5], "stop"), Output()],
            (8, 18),
        ),
    ],
)
def test_the_queue_is_told_of_the_work_of_all_candidates(
    job: Job, sampling: Sampling, outputs: list[Output], work: tuple[int, int]
) -> None:
    payload, submit = replace(job, sampling=sampling).messages("gateway-0", 0, outputs)
    assert (submit.prompt_tokens, submit.max_tokens) == work
    assert payload.outputs == outputs


async def test_a_loss_is_answered_once(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job):
        await dispatcher.deliver(lost(attempt=0))
        await dispatcher.deliver(lost(attempt=0))
        assert queue.submits.qsize() == 2


async def test_unknown_and_complete_requests_are_not_submitted_again(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    async with dispatcher.run(job):
        await dispatcher.deliver(lost(attempt=0, request_id="another"))
        await dispatcher.deliver(tokens(0, "a", request_id="another"))
        await dispatcher.deliver(tokens(0, "a", "stop"))
        await dispatcher.deliver(lost(attempt=0))
        assert queue.submits.qsize() == 1
        assert [await queue.next_cancel(), await queue.next_cancel()] == ["another", "r"], "nobody waits for them"


async def test_a_gap_is_a_lost_attempt(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        await dispatcher.deliver(tokens(0, "a"))
        await dispatcher.deliver(tokens(2, "c"))
        assert queue.payloads["r"].outputs == [Output(ids("a"))]
        await dispatcher.deliver(tokens(1, "bc", "stop", attempt=1))
        assert await call.next_news(WAIT_S) == [Delta("abc", 3, "stop")]


async def test_a_request_that_kills_its_nodes_is_given_up(queue: MemoryQueue, dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        for attempt in range(MAX_FRUITLESS_ATTEMPTS + 1):
            await dispatcher.deliver(lost(attempt))
        assert await call.next_news(WAIT_S) is Failure.LOST
    assert queue.submits.qsize() == MAX_FRUITLESS_ATTEMPTS + 1
    assert await queue.next_cancel() == "r"


async def test_a_message_that_could_not_be_handled_can_be_delivered_again(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    async with dispatcher.run(job):
        await dispatcher.deliver(tokens(0, "a"))
        queue.is_down = True
        with pytest.raises(QueueUnavailableError):
            await dispatcher.deliver(lost(attempt=0))
        queue.is_down = False
        await dispatcher.deliver(lost(attempt=0))
        assert queue.payloads["r"].attempt == 1


async def test_a_queue_that_is_away_at_the_end_costs_the_client_nothing(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    async with dispatcher.run(job):
        queue.is_down = True
    assert dispatcher.num_inflight == 0


async def test_a_job_that_cannot_be_submitted_leaves_nothing(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    queue.is_down = True
    with pytest.raises(QueueUnavailableError):
        async with dispatcher.run(job):
            pytest.fail("it was not submitted")
    assert dispatcher.num_inflight == 0


async def test_its_attempts_are_those_whose_answers_are_not_complete(dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job):
        assert dispatcher.attempts() == [Attempt("r", 0)]
        await dispatcher.deliver(lost(attempt=0))
        assert dispatcher.attempts() == [Attempt("r", 1)]
        await dispatcher.deliver(tokens(0, "a", "stop", attempt=1))
        assert dispatcher.attempts() == []


async def test_a_slow_client_finds_everything_in_one_piece(dispatcher: Dispatcher, job: Job) -> None:
    async with dispatcher.run(job) as call:
        for index, character in enumerate("abcdefghij"):
            await dispatcher.deliver(tokens(index, character))
        assert await call.next_news(WAIT_S) == [Delta("abcdefghij", 10, "length")]
        assert await call.next_news(timeout_s=0) is None


async def test_a_client_that_leaves_during_a_resubmission_leaves_nothing(job: Job) -> None:
    class SlowQueue(MemoryQueue):
        """Holds the second attempt back until the client has left."""

        def __init__(self) -> None:
            super().__init__()
            self.is_resubmitting = asyncio.Event()
            self.may_go_on = asyncio.Event()

        async def submit(self, payload: Payload, submit: Submit) -> None:
            if submit.attempt:
                self.is_resubmitting.set()
                await self.may_go_on.wait()
            await super().submit(payload, submit)

    queue = SlowQueue()
    dispatcher = Dispatcher(queue, "gateway-0")
    async with dispatcher.run(job):
        delivery = asyncio.create_task(dispatcher.deliver(lost(attempt=0)))
        await queue.is_resubmitting.wait()
    queue.may_go_on.set()
    await delivery
    assert queue.payloads == {}
    assert queue.cancels.qsize() == 2


async def test_of_places_that_nobody_took_the_last_is_kept_and_a_token_ends_them(
    dispatcher: Dispatcher, job: Job
) -> None:
    def standing(num_ahead: int) -> QueueStatus:
        return QueueStatus(lines=[], places=[QueuePlace("r", num_ahead, 1.0, 2.0), QueuePlace("gone", 0, 0.0, 0.0)])

    async with dispatcher.run(job) as call:
        for num_ahead in (9, 8, 7):
            await dispatcher.deliver(standing(num_ahead))
        assert await call.next_news(WAIT_S) == QueuePlace("r", 7, 1.0, 2.0)
        await dispatcher.deliver(standing(6))
        await dispatcher.deliver(tokens(0, "a"))
        await dispatcher.deliver(standing(5))
        assert await call.next_news(WAIT_S) == [Delta("a", 1)]
        assert await call.next_news(timeout_s=0) is None


async def test_a_rejection_comes_once_and_ends_the_request(
    queue: MemoryQueue, dispatcher: Dispatcher, job: Job
) -> None:
    rejected = Rejected(request_id="r", attempt=0, wait_s=30.0, retry_after_s=4.0)
    async with dispatcher.run(job) as call:
        for _ in range(2):  # the message may come twice
            await dispatcher.deliver(rejected)
        await dispatcher.deliver(tokens(0, "late"))
        assert await call.next_news(WAIT_S) == Rejection(30.0, 4.0)
        assert call.is_complete
    assert await queue.next_finish() == "r"
    assert queue.cancels.empty()

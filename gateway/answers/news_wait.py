"""Waiting for the tokens of a call: how long, and what its client sees meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.answers.sse import SseStream
from gateway.inflight.calls.call import InflightCall, Take
from gateway.openai.answers.delta import Delta, End
from gateway.openai.errors import errors
from shared.messages.requests.requests import QueuePlace

KEEP_ALIVE_S = 15.0  # proxies commonly close a connection after 30 s or 60 s of silence
MAX_SILENCE_S = 600.0  # an answer that was begun and then stands still this long is given up


@dataclass(frozen=True)
class NewsWait:
    """How long an answer may wait for its next tokens."""

    queue_ttl_s: float
    """For the first one of each prompt, while nodes are busy; the request's class says this."""
    cold_start_ttl_s: float
    """The same while no node at all can serve the model."""
    keep_alive_s: float = KEEP_ALIVE_S
    """Before an open stream shows that it is alive."""
    max_silence_s: float = MAX_SILENCE_S
    """For a later one of any prompt, before the answer is given up."""

    @classmethod
    def of(cls, queue_ttl_s: float, cold_start_ttl_s: float, *, is_ranked: bool) -> NewsWait:
        """Of a call whose class has this time to live in the queue.

        An answer that was begun may have to give way to more urgent ones, and then waits in the queue once more. Of a
        ranked one there is no sign of life before it is complete.
        """
        return cls(
            queue_ttl_s=queue_ttl_s + (MAX_SILENCE_S if is_ranked else 0.0),
            cold_start_ttl_s=cold_start_ttl_s,
            max_silence_s=max(MAX_SILENCE_S, queue_ttl_s),
        )

    def queue_left_s(self, began_s: float, now: float) -> float:
        """Until a request that has waited since ``began_s`` is dropped, busy nodes or none."""
        return began_s + self.queue_ttl_s - now

    def cold_left_s(self, began_s: float, unserved_since_s: float | None, now: float) -> float:
        """Until it can be dropped at the earliest because no node can serve its model.

        Where one can (None), be it after a swap, this time begins at the earliest now.
        """
        since_s = now if unserved_since_s is None else unserved_since_s
        return max(began_s, since_s) + self.cold_start_ttl_s - now


async def first_news(call: InflightCall, patience: NewsWait, stream: SseStream | None = None) -> list[Delta] | End:
    """The first tokens; `ApiError` 429 or 503 when they have not come in time.

    Places in the queue go to ``stream``, which the first of them opens.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        left_s = _left_s(call, patience, began_s, loop.time())
        is_open = stream is not None and stream.is_open
        news = await call.next_news(min(left_s, patience.keep_alive_s) if is_open else left_s)
        if isinstance(news, QueuePlace):
            if stream is not None:
                await stream.open()
                await stream.show_place(news)
        elif news is not None:
            return news
        elif stream is not None and is_open:
            await stream.keep_alive()


def _left_s(call: InflightCall, patience: NewsWait, began_s: float, now: float) -> float:
    """For how long nothing needs to be looked at again; `ApiError` when the wait is over."""
    queue_left_s = patience.queue_left_s(began_s, now)
    if queue_left_s <= 0:
        line = call.queue_line(now)
        raise errors.ttl_expired(patience.queue_ttl_s, None if line is None else line.wait_s)
    cold_left_s = patience.cold_left_s(began_s, call.unserved_since(now), now)
    if cold_left_s <= 0:
        ttl_s = patience.cold_start_ttl_s
        raise errors.no_endpoints(f"no node could serve the model {call.served_name!r} for {ttl_s:g} s")
    return min(queue_left_s, cold_left_s)


async def rest(call: InflightCall, patience: NewsWait) -> list[Delta] | End:
    """All further tokens when the last of them is there; `ApiError` 503 when none comes for too long."""
    silence_s, num_untold = 0.0, call.num_untold
    while not await call.until_whole(patience.keep_alive_s):
        silence_s = silence_s + patience.keep_alive_s if call.num_untold == num_untold else 0.0
        num_untold = call.num_untold
        _check_silence(call, patience, silence_s)
    return call.all_news()


async def pass_on(call: InflightCall, patience: NewsWait, take: Take, stream: SseStream) -> None:
    """Give the further tokens to ``take`` until it wants no more now, or there will be none.

    There are comments on the stream while no token comes; `ApiError` 503 when none does for too long.
    """
    silence_s, num_passed = 0.0, call.num_passed
    while not await call.pass_on(take, patience.keep_alive_s):
        silence_s = patience.keep_alive_s + (silence_s if call.num_passed == num_passed else 0.0)
        num_passed = call.num_passed
        _check_silence(call, patience, silence_s)
        await stream.keep_alive()


def _check_silence(call: InflightCall, patience: NewsWait, silence_s: float) -> None:
    # of several prompts, some may still wait in the queue when others are through
    if silence_s >= (patience.max_silence_s if call.has_begun else patience.queue_ttl_s):
        raise errors.no_endpoints(f"no token has come for {silence_s:g} s")

"""A request in flight: a job, how far its answer is, and where its news go."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gateway.generation.generation import Generation, Verdict
from gateway.inflight.calls.job import Job
from gateway.openai.answers.delta import Delta, End, Failure
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk, QueuePlace, Rejected, Submit

_log = structlog.get_logger(__name__)


class InflightRequest:
    """A job and its answer so far; what is new is given to ``tell``, which never waits."""

    def __init__(
        self, job: Job, gateway: str, first_choice: int, tell: Callable[[Delta | End | QueuePlace], None]
    ) -> None:
        self.job = job
        self.generation = Generation(job.token_bytes, job.stops, job.sampling, first_choice, job.thoughts)
        self.is_unsure = False
        """The end of a submit was not known: it may come behind whatever is said of the request."""
        self._gateway = gateway
        self._tell = tell
        self._asked_s: float | None = None

    def messages(self, attempt: int, now: float, *, has_crashed: bool = False) -> tuple[Payload, Submit]:
        """What puts this attempt into the queue, with the answer so far; ``has_crashed``: the one before did."""
        if self._asked_s is None:
            self._asked_s = now
        generation = self.generation
        return self.job.messages(
            self._gateway,
            attempt,
            generation.outputs,
            waited_s=now - self._asked_s,
            num_crashes=generation.num_crashes + has_crashed,
        )

    def take(self, chunk: Chunk, node: str) -> Verdict | None:
        """Hand a chunk's news from ``node`` to the handler; otherwise say why there are none."""
        found = self.generation.accept(chunk)
        if isinstance(found, Verdict):
            return found
        if found is Failure.ENGINE:
            self._log_failure(chunk, node)
        self._tell(found)
        return None

    def _log_failure(self, chunk: Chunk, node: str) -> None:
        """Its client is told that the node failed, and no more: the reason is for operators."""
        _log.error(
            "generation_failed",
            request_id=self.job.request_id,
            attempt=chunk.attempt,
            model=self.job.served_name,
            node=node,
            num_tokens=chunk.index,
            error=chunk.error or "the node sent what cannot be",
        )

    def show(self, place: QueuePlace) -> None:
        """Tell the handler where it stands in the queue, while it waits there for its first run."""
        if not self.generation.has_begun and not self.generation.is_over:
            self._tell(place)

    def reject(self, message: Rejected) -> None:
        """Tell the handler that the promise cannot be kept."""
        found = self.generation.reject(message)
        if not isinstance(found, Verdict):
            self._tell(found)

    def give_up(self) -> None:
        """Tell the handler that there will be no answer."""
        self._tell(self.generation.give_up())

    def stop(self) -> None:
        """Tell the handler that the gateway ends before the answer does."""
        self._tell(self.generation.stop())

    def revoke(self) -> None:
        """Tell the handler that its client's key is not valid any more."""
        self._tell(self.generation.give_up(Failure.REVOKED))

    def give_up_crashed(self) -> int:
        """Tell the handler that engines die with it; answers how many have."""
        end = self.generation.crash(self.job.request_id)
        self._tell(end)
        return end.num_crashes

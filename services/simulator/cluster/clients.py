"""Many clients in the place of a gateway: what each of them sees of its answer, as counts and times.

The rules are those of `gateway.generation.generation` for plain answers: a token counts once, a gap or a lost node
means another attempt that goes on from what is there, and only those that were not asked to give way count against the
request. Texts play no part here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.generation.generation import MAX_FRUITLESS_ATTEMPTS
from services.simulator.cluster.gateway import BEAT_S
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.devices.device import VOCAB_SIZE
from services.simulator.workloads.request import WorkloadRequest
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.services.queue import cache_partition
from shared.files.length_trace import HASH_TOKENS
from shared.messages.memory.blocks import Locate
from shared.messages.message import Message
from shared.messages.prefixes.partitions import owner_of
from shared.messages.prefixes.prefixes import prompt_prefix
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import Cancel, Chunk, GatewayBeat, Rejected, Resubmit, Submit, Tokens

HASH_DIGITS = 4  # in the base of the vocabulary, of the largest of `hash_ids`
UNSERVED = "unserved"  # why a request was not answered: no node could ever have its model


@dataclass(slots=True)
class ClientOutcome:
    """One request as its client sees it."""

    number: int
    request: WorkloadRequest
    sent_s: float
    attempt: int = 0
    num_tokens: int = 0
    num_fruitless: int = 0
    started_s: float | None = None
    """When a node took it for the first time."""
    first_token_s: float | None = None
    finished_s: float | None = None
    """When it was over, answered or not; None where it waited in vain."""
    reason: str = ""
    """``stop`` or ``length`` of an answer; ``rejected`` where the promise could not be kept; `UNSERVED`; an error
    otherwise; ``""`` until then."""

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer."""
        return self.reason in ("stop", "length")


class Clients:
    """Submit the requests of a workload, take their tokens, submit again what was lost."""

    def __init__(
        self,
        bus: MemoryBus,
        config: ClusterConfig,
        on_over: Callable[[ClientOutcome], None],
        block_tokens: int = 0,
    ) -> None:
        """``block_tokens``: as `gateway.inflight.calls.job.Job`."""
        self._block_tokens = block_tokens
        self._bus = bus
        self._config = config
        self._on_over = on_over
        self._open: dict[str, ClientOutcome] = {}
        self._slos = {name: config.slo(name) for name in config.slo_classes}
        bus.subscribe(streams.tokens("clients"), self._receive)
        self._beat()

    def submit(self, number: int, request: WorkloadRequest) -> ClientOutcome:
        """A client asks; ``number`` is the seed of its answer. What comes of it grows with time."""
        outcome = ClientOutcome(number, request, self._bus.now)
        self._open[str(number)] = outcome
        self._send(outcome)
        return outcome

    def _send(self, outcome: ClientOutcome) -> None:
        request, request_id = outcome.request, str(outcome.number)
        outputs = [Output([0] * outcome.num_tokens)] if outcome.num_tokens else []
        token_ids = prompt(outcome.number, request)
        partition = cache_partition(self._config.tenants, request.tenant)
        prefix = prompt_prefix(token_ids, self._block_tokens, owner_of("", partition)) if self._block_tokens else None
        self._bus.payloads[request_id] = Payload(
            request_id=request_id,
            attempt=outcome.attempt,
            gateway="clients",
            model=request.model,
            prompt_token_ids=token_ids,
            sampling=Sampling(max_tokens=request.max_tokens, seed=outcome.number),
            outputs=outputs,
            enqueued_s=outcome.sent_s,
            due_s=self._slos[request.slo].finish_by_s(outcome.sent_s, request.max_tokens),
            partition=partition,
        )
        submit = Submit(
            request_id=request_id,
            gateway="clients",
            model=request.model,
            slo=self._slos[request.slo],
            prompt_tokens=request.prompt_tokens + outcome.num_tokens,
            max_tokens=request.max_tokens - outcome.num_tokens,
            tenant=request.tenant,
            attempt=outcome.attempt,
            prefix=prefix,
        )
        self._bus.send(streams.QUEUE, submit)
        question = Locate.of(submit)
        if question is not None:
            self._bus.send(streams.KV, question)

    def _receive(self, message: Message, now: float) -> None:
        match message:
            case Tokens(chunks=chunks):
                for chunk in chunks:
                    outcome = self._open.get(chunk.request_id)
                    if outcome is not None and outcome.attempt == chunk.attempt:
                        self._take(outcome, chunk, now)
            case Resubmit(requests=requests, gave_way=gave_way):
                for lost in requests:
                    outcome = self._open.get(lost.request_id)
                    if outcome is not None and outcome.attempt == lost.attempt:
                        self._try_again(outcome, now, gave_way=gave_way)
            case Rejected(request_id=request_id):
                outcome = self._open.get(request_id)
                if outcome is not None:
                    self._over(outcome, "rejected", now)

    def _take(self, outcome: ClientOutcome, chunk: Chunk, now: float) -> None:
        if chunk.index > outcome.num_tokens:
            self._try_again(outcome, now)
            return
        num_new = chunk.index + len(chunk.token_ids) - outcome.num_tokens
        if num_new > 0:
            outcome.first_token_s = now if outcome.first_token_s is None else outcome.first_token_s
            outcome.num_tokens += num_new
            outcome.num_fruitless = 0
        if chunk.is_last:
            self._over(outcome, chunk.finish_reason, now)

    def _try_again(self, outcome: ClientOutcome, now: float, *, gave_way: bool = False) -> None:
        outcome.attempt += 1
        outcome.num_fruitless += not gave_way
        if outcome.num_fruitless <= MAX_FRUITLESS_ATTEMPTS:
            self._send(outcome)
        else:
            self._bus.send(streams.QUEUE, Cancel(request_id=str(outcome.number)))
            self._over(outcome, "lost", now)

    def _over(self, outcome: ClientOutcome, reason: str, now: float) -> None:
        outcome.reason, outcome.finished_s = reason, now
        request_id = str(outcome.number)
        del self._open[request_id], self._bus.payloads[request_id]
        self._on_over(outcome)

    def _beat(self) -> None:
        self._bus.send(streams.QUEUE, GatewayBeat(gateway="clients"))
        self._bus.at(self._bus.now + BEAT_S, self._beat)


def prompt(number: int, request: WorkloadRequest) -> list[int]:
    """Where contents are not known, one that begins as no other does among the first million."""
    num_tokens = request.prompt_tokens
    if request.hash_ids:
        return [token for one in request.hash_ids for token in _tokens(one)][:num_tokens]
    begin = [number % VOCAB_SIZE, number // VOCAB_SIZE % VOCAB_SIZE]
    return [*begin, *[0] * (num_tokens - 2)][:num_tokens]


def _tokens(hash_id: int) -> list[int]:
    """Others for each number: its digits, again and again."""
    digits = [hash_id // VOCAB_SIZE**place % VOCAB_SIZE for place in range(HASH_DIGITS)]
    return digits * (HASH_TOKENS // HASH_DIGITS)

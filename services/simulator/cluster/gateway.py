"""A gateway in the simulator: the live decisions about answers, and clients that only count tokens."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.generation.generation import Generation, Verdict
from gateway.inflight.calls.job import Job
from gateway.openai.answers.delta import Delta, Failure, NodeRefusal
from services.simulator.cluster.memory_bus import MemoryBus
from shared.bus import streams
from shared.messages.memory.blocks import Locate
from shared.messages.message import Message
from shared.messages.requests import inventories
from shared.messages.requests.payload import Output, Sampling
from shared.messages.requests.requests import Attempt, Cancel, GatewayBeat, Resubmit, Tokens
from shared.messages.requests.slo import Slo

BEAT_S = 2.0


@dataclass(slots=True)
class Answer:
    """One request as its client sees it."""

    job: Job
    generation: Generation
    sent_s: float
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def token_ids(self) -> list[int]:
        """Output of the first choice so far, every token once."""
        return self.outputs[0].token_ids if self.outputs else []

    @property
    def outputs(self) -> list[Output]:
        """Output of each choice so far; empty while there is none."""
        return self.generation.outputs


class SimulatedGateway:
    """Submits requests, takes tokens, submits again what a lost node ran."""

    def __init__(self, bus: MemoryBus, name: str, vocab_size: int, block_tokens: int = 0) -> None:
        """``block_tokens``: as `Job`."""
        self.name = name
        self._block_tokens = block_tokens
        self.answers: dict[str, Answer] = {}
        self._bus = bus
        self._token_bytes = [b"x"] * vocab_size
        self._is_alive = True
        self._num_inventories = 0
        bus.subscribe(streams.tokens(name), self._receive)
        self._beat()

    def submit(self, request_id: str, model: str, slo: Slo, prompt: list[int], sampling: Sampling) -> None:
        """A client asks."""
        job = Job(
            request_id,
            model,
            prompt,
            sampling,
            (),
            self._token_bytes,
            slo,
            "default",
            enqueued_s=self._bus.now,
            block_tokens=self._block_tokens,
        )
        generation = Generation(self._token_bytes, (), sampling)
        self.answers[request_id] = Answer(job, generation, self._bus.now)
        self._send(self.answers[request_id])

    def cancel(self, request_id: str) -> None:
        """The client leaves."""
        del self.answers[request_id]
        del self._bus.payloads[request_id]
        self._bus.send(streams.QUEUE, Cancel(request_id=request_id))

    def die(self) -> None:
        """Fall silent, with all clients."""
        self._is_alive = False
        self._bus.unsubscribe(streams.tokens(self.name))

    def say_inventory(self) -> None:
        """Redis has come back without the end of its log, or its stream was gone: say again what is in flight."""
        self._bus.subscribe(streams.tokens(self.name), self._receive)
        self._num_inventories += 1
        self._bus.send(streams.QUEUE, GatewayBeat(gateway=self.name, inventory=self._num_inventories))
        inflight = [Attempt(name, self.answers[name].generation.attempt) for name in self.unfinished]
        for part in inventories.of_gateway(self.name, self._num_inventories, inflight):
            self._bus.send(streams.QUEUE, part)

    @property
    def unfinished(self) -> list[str]:
        """Requests that have no complete answer."""
        return [name for name, answer in self.answers.items() if answer.finished_s is None]

    def _send(self, answer: Answer) -> None:
        payload, submit = answer.job.messages(
            self.name,
            answer.generation.attempt,
            answer.outputs,
            waited_s=self._bus.now - answer.sent_s,
            num_crashes=answer.generation.num_crashes,
        )
        self._bus.payloads[payload.request_id] = payload
        self._bus.send(streams.QUEUE, submit)
        question = Locate.of(submit)
        if question is not None:
            self._bus.send(streams.KV, question)

    def _receive(self, message: Message, now: float) -> None:
        match message:
            case Tokens(chunks=chunks):
                for chunk in chunks:
                    answer = self.answers.get(chunk.request_id)
                    if answer is not None:
                        self._take(answer, answer.generation.accept(chunk), now)
            case Resubmit(requests=requests, gave_way=gave_way, has_crashed=has_crashed):
                for lost in requests:
                    answer = self.answers.get(lost.request_id)
                    if answer is not None and answer.generation.attempt == lost.attempt:
                        self._try_again(answer, gave_way=gave_way, has_crashed=has_crashed)

    def _take(self, answer: Answer, news: Delta | Failure | NodeRefusal | Verdict, now: float) -> None:
        if news is Verdict.GAP:
            self._try_again(answer)
        elif isinstance(news, Delta):
            answer.first_token_s = now if answer.first_token_s is None else answer.first_token_s
        if answer.generation.is_over and answer.finished_s is None:
            answer.finished_s = now
            self._release(answer)

    def _release(self, answer: Answer) -> None:
        del self._bus.payloads[answer.job.request_id]
        if not answer.generation.ended_by_node:
            self._bus.send(streams.QUEUE, Cancel(request_id=answer.job.request_id))

    def _try_again(self, answer: Answer, *, gave_way: bool = False, has_crashed: bool = False) -> None:
        generation = answer.generation
        if generation.may_try_again(gave_way=gave_way, has_crashed=has_crashed):
            generation.begin_attempt(generation.attempt + 1, gave_way=gave_way, has_crashed=has_crashed)
            self._send(answer)

    def _beat(self) -> None:
        if self._is_alive:
            self._bus.send(streams.QUEUE, GatewayBeat(gateway=self.name))
            self._bus.at(self._bus.now + BEAT_S, self._beat)

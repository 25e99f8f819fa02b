"""The attempts that a node has, each in one place: in its engine, in its host memory, or on its way to another node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpu_node.agent.decisions.actions import Ack, GroupEntry, SayInventory
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Attempt, Chunk, EvictedRequest, ImageTicket


class KvDestination(Enum):
    """What becomes of the KV of an attempt that is being taken out."""

    STAYS = "stays"
    """In host memory here."""
    MOVES = "moves"
    """Another node goes on with it."""
    DROPPED = "dropped"
    """Another node goes on without it."""


@dataclass(slots=True)
class RunningAttempt:
    """An attempt that the engine has, or is to have as soon as its image is here."""

    attempt: int
    gateway: str
    ack: Ack
    """Its group entry."""
    num_tokens: dict[int, int]
    """Length of each choice's output so far, with what earlier attempts brought."""
    kv_destination: KvDestination = KvDestination.STAYS
    """Should it be evicted."""
    is_fetching: bool = False
    """Its image, or its adapter, is on the way: the engine does not have it yet."""
    model: str = ""
    adapter: str = ""
    is_fresh: bool = False
    """It began with its prompt: none of its KV has been kept for it."""
    has_begun: bool = False
    """It has brought a token: its prompt is computed."""
    is_open: bool = False
    """Its image is read while its prompt is computed, if the engine has room for that."""
    image_bytes: int = 0
    """Host memory that the engine has taken for such an image."""
    prompt_tokens: int = 0
    max_tokens: int = 0
    """Of each choice, all attempts together."""

    @property
    def output_tokens(self) -> int:
        """Tokens of all choices so far."""
        return sum(self.num_tokens.values())


@dataclass(frozen=True, slots=True)
class EvictedAttempt:
    """An attempt that was taken out of the engine, which keeps its KV."""

    attempt: int
    num_tokens: dict[int, int]
    kv_tokens: int
    ack: Ack | None = None
    """Its group entry, while the queue manager has not been told that it runs no more."""

    def told(self, request_id: str, kv_tokens: int, kv_at: str, image: ImageTicket | None = None) -> EvictedRequest:
        """What the queue manager is told of it."""
        return EvictedRequest(request_id, self.attempt, sum(self.num_tokens.values()), kv_tokens, kv_at, image)


class Ledger:
    """Owns which attempts are where. No request is in two places."""

    def __init__(self) -> None:
        self.running: dict[str, RunningAttempt] = {}
        """In the engine, in the order in which they were pulled."""
        self.parked: dict[str, EvictedAttempt] = {}
        """KV in host memory, until they are pulled again; bounded by what the engine has room for."""
        self.moving: dict[str, EvictedAttempt] = {}
        """The engine has been asked for their images."""
        self._places: list[dict[str, RunningAttempt] | dict[str, EvictedAttempt]] = [
            self.running,
            self.parked,
            self.moving,
        ]

    def run(self, group: str, entry: GroupEntry, payload: Payload) -> RunningAttempt:
        """The engine gets an attempt. What was here of the request, this attempt or an older one, ends with that."""
        enqueued = entry.enqueued
        request_id = enqueued.request_id
        parked = self.parked.pop(request_id, None)
        self.moving.pop(request_id, None)
        self.running.pop(request_id, None)
        num_tokens = {choice: len(output.token_ids) for choice, output in enumerate(payload.outputs)}
        if parked is not None and parked.attempt == enqueued.attempt:
            num_tokens = parked.num_tokens
        ack = Ack(group, entry.entry_id)
        self.running[request_id] = running = RunningAttempt(
            enqueued.attempt,
            enqueued.gateway,
            ack,
            num_tokens,
            model=payload.model,
            adapter=payload.adapter,
            is_fresh=not enqueued.kv_at,
            prompt_tokens=payload.num_prompt_tokens,
            max_tokens=payload.sampling.max_tokens,
        )
        return running

    def goes_on(self, group: str, entry: GroupEntry) -> bool:
        """Whether the engine has just this attempt: a Redis that lost its end hands out an entry twice.

        The engine must not get it again. It may have ended there, which is not known here yet; then its output would go
        to no client.
        """
        running = self.find(entry.enqueued.request_id, entry.enqueued.attempt)
        if running is not None:
            running.ack = Ack(group, entry.entry_id)
        return running is not None

    def attempts(self) -> list[Attempt]:
        """All that is here."""
        return [Attempt(request_id, held.attempt) for place in self._places for request_id, held in place.items()]

    def adapters_of(self, model: str) -> set[str]:
        """That requests for a model are for which are in the engine, or are to be."""
        return {one.adapter for one in self.running.values() if one.model == model and one.adapter}

    def inventory(self) -> SayInventory:
        """All that is here, as the queue manager should believe it: what moves has not been given back yet."""
        leaving = {name: held for name, held in self.moving.items() if held.ack is not None}
        kept = self.parked | {name: held for name, held in self.moving.items() if held.ack is None}
        running = self.running | leaving
        return SayInventory(
            running=[Attempt(name, held.attempt) for name, held in running.items()],
            parked=[Attempt(name, held.attempt) for name, held in kept.items()],
        )

    def find(self, request_id: str, attempt: int) -> RunningAttempt | None:
        """The attempt, if the engine has just this one."""
        running = self.running.get(request_id)
        return running if running is not None and running.attempt == attempt else None

    def extend(self, chunk: Chunk) -> RunningAttempt | None:
        """Take in new tokens of a choice; None where the attempt does not run any more. Its last chunk ends it."""
        running = self.find(chunk.request_id, chunk.attempt)
        if running is not None:
            if chunk.token_ids:  # their place tells the length: what is computed again is not counted twice
                running.num_tokens[chunk.choice] = chunk.index + len(chunk.token_ids)
                running.has_begun = True
            elif chunk.embedding:
                running.num_tokens[chunk.choice] = 1  # as which it counts
            if chunk.is_last:
                del self.running[chunk.request_id]
        return running

    def forget(self, attempt: Attempt) -> tuple[bool, Ack | None]:
        """Whether the attempt was here, in whatever place; and its group entry, if that is still to be acknowledged."""
        for place in self._places:
            held = place.get(attempt.request_id)
            if held is not None and held.attempt == attempt.attempt:
                del place[attempt.request_id]
                return True, held.ack
        return False, None

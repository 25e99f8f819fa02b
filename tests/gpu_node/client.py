"""A client of the engine: one request, when it comes and goes, and what it hears."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpu_node.engine.requests.chunk import OutputChunk
from shared.messages.requests.payload import Output, Payload
from shared.messages.requests.token_logprob import TokenLogprob


@dataclass
class Client:
    """One request, and what has come of it. Times are numbers of steps."""

    arrives_at: int
    payload: Payload
    cancelled_at: int | None = None
    resumed_at: int | None = None
    evicted_at: int | None = None
    back_at: int | None = None
    """When an evicted request is run again: the same attempt."""
    moves: bool = False
    """Its image is handed over to another engine."""
    is_kept: bool = False
    """It was evicted, and its KV is in host memory."""
    outputs: dict[int, Output] = field(default_factory=dict)
    """By choice, of all attempts."""
    logprobs: dict[int, list[TokenLogprob]] = field(default_factory=dict)
    is_over: bool = False

    @property
    def request_id(self) -> str:
        return self.payload.request_id

    def take(self, chunk: OutputChunk) -> None:
        assert not self.is_over, "nothing comes after the last chunk"
        assert chunk.attempt == self.payload.attempt
        assert not chunk.error
        before = self.outputs.get(chunk.choice, Output())
        if before.finish_reason:  # the last choice had ended in the attempt before: only the attempt's end is new
            assert (chunk.token_ids, chunk.is_last) == ([], True)
        else:
            assert chunk.start == len(before.token_ids), "no token is lost or doubled"
            self.outputs[chunk.choice] = Output([*before.token_ids, *chunk.token_ids], chunk.finish_reason)
            self.logprobs.setdefault(chunk.choice, []).extend(chunk.logprobs)
        self.is_over = chunk.is_last

    def next_attempt(self) -> Payload:
        """As a gateway submits it to the next node: with what the client has."""
        outputs = [self.outputs.get(choice, Output()) for choice in range(self.payload.sampling.num_choices)]
        self.payload = replace(self.payload, attempt=self.payload.attempt + 1, outputs=outputs)
        return self.payload

"""A plain request in the fast engine: one choice, a prompt of its own, lengths instead of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.requests.chunk import OutputChunk
from services.simulator.fast.parking import Parked
from shared.messages.requests.payload import Output, Payload


@dataclass(slots=True, eq=False)
class FastSequence:
    """What an engine knows of it."""

    payload: Payload
    order: int
    """Place in the order of arrival at this engine."""
    num_prompt_tokens: int
    max_len: int
    """Most tokens that it can come to have, prompt and output together."""
    answer_len: int
    """Tokens with which the model would end it, prompt and output together; known to the simulator only."""
    num_told_tokens: int
    """Output tokens that the client has been sent."""
    offset: int
    """Known tokens; while it decodes, less the clock at which it had so many."""
    parked: Parked | None
    """What it will go on from, while it waits for that."""
    num_computed_tokens: int = 0
    """Of the prefill; while it decodes, all but the last known."""
    num_dropped_tokens: int = 0
    """As in the live engine's `gpu_node.engine.requests.sequence.EngineRequest`."""
    rank: int = 0
    """Place in the order of admission."""

    @classmethod
    def of(
        cls, payload: Payload, order: int, max_model_len: int, num_answer_tokens: int, parked: Parked | None
    ) -> FastSequence:
        """A request as it comes; with what was kept of it, its client has been sent all that is known."""
        num_prompt_tokens = len(payload.prompt_token_ids)
        output = payload.outputs[0] if payload.outputs else Output()
        num_told_tokens = len(output.token_ids) if parked is None else parked.num_known_tokens - num_prompt_tokens
        return cls(
            payload=payload,
            order=order,
            num_prompt_tokens=num_prompt_tokens,
            max_len=min(num_prompt_tokens + payload.sampling.max_tokens, max_model_len),
            answer_len=num_prompt_tokens + num_answer_tokens,
            num_told_tokens=num_told_tokens,
            offset=num_prompt_tokens + num_told_tokens,
            parked=parked,
        )

    @property
    def end_len(self) -> int:
        """Tokens that it will have at its end."""
        return min(self.max_len, self.answer_len)

    @property
    def end_reason(self) -> str:
        """What ends it: the model, or the limit."""
        return "stop" if self.answer_len <= self.max_len else "length"

    def num_untold_tokens(self, num_known_tokens: int) -> int:
        """Output tokens that its client has not been sent, of so many known ones."""
        return num_known_tokens - self.num_prompt_tokens - self.num_told_tokens

    def tell(self, num_known_tokens: int, finish_reason: str) -> OutputChunk:
        """What its client has not been sent."""
        start, num_new = self.num_told_tokens, self.num_untold_tokens(num_known_tokens)
        self.num_told_tokens += num_new
        return OutputChunk(
            self.payload.request_id,
            self.payload.attempt,
            start,
            [0] * num_new,
            finish_reason,
            is_last=bool(finish_reason),
            cached_tokens=None if start or not num_new or self.payload.outputs else 0,  # no two prompts begin alike
        )

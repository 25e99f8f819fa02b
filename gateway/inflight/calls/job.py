"""What a client asked for, complete and checked, and the messages that put an attempt of it into the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opentelemetry.trace import INVALID_SPAN, Span

from gateway.generation.stop_strings import StopPattern
from gateway.reasoning.marks import ThoughtReading
from shared.messages.prefixes.partitions import owner_of
from shared.messages.prefixes.prefixes import PromptPrefix, prompt_prefix
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.pictures import Picture
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo
from shared.telemetry.trace_context import traceparent


@dataclass(frozen=True)
class Job:
    """One admitted request, complete and checked."""

    request_id: str
    model: str
    """As queue and nodes know it."""
    prompt_token_ids: list[int]
    sampling: Sampling
    stops: Sequence[StopPattern]
    token_bytes: Sequence[bytes] = field(repr=False)
    slo: Slo
    tenant: str
    span: Span = field(default=INVALID_SPAN, repr=False)
    """Of the call that it belongs to; what the cluster does for it hangs below."""
    enqueued_s: float = 0.0
    """Unix time at which its client asked."""
    wants_place: bool = False
    """The client would like to hear of its place in the queue."""
    block_tokens: int = 0
    """Of a block of KV memory, where requests go to what is cached of their prompts; 0 where they do not."""
    adapter: str = ""
    """Which of the model's adapters shall answer; ``""`` for the model itself."""
    thoughts: ThoughtReading | None = None
    """How thoughts are told apart from answers; None where they are not."""
    pictures: Sequence[Picture] = field(default=(), repr=False)
    """Images of the prompt, with their content: another attempt may have to bring them again."""
    partition: str = ""
    weights: str = ""
    """Both as in `Payload`."""

    @cached_property
    def num_prompt_tokens(self) -> int:
        """As they are counted everywhere: of an image, as many as the model reads of it at most."""
        return len(self.prompt_token_ids) + sum(picture.num_tokens - 1 for picture in self.pictures)

    @property
    def served_name(self) -> str:
        """What its client said as ``model``."""
        return self.adapter or self.model

    def messages(
        self, gateway: str, attempt: int, outputs: list[Output], *, waited_s: float = 0.0, num_crashes: int = 0
    ) -> tuple[Payload, Submit]:
        """What the queue needs for an attempt: what the client has of each choice, and how much is left to do.

        ``waited_s``: since the client asked. ``num_crashes``: of its last attempts, those that ended with an engine.
        """
        prompt_tokens, max_tokens = self._work(outputs)
        done_tokens = self._work([])[1] - max_tokens
        parent = traceparent(self.span)
        payload = Payload(
            request_id=self.request_id,
            attempt=attempt,
            gateway=gateway,
            model=self.model,
            prompt_token_ids=self.prompt_token_ids,
            sampling=self.sampling,
            outputs=outputs,
            traceparent=parent,
            num_crashes=num_crashes,
            enqueued_s=self.enqueued_s,
            due_s=self.slo.finish_by_s(self.enqueued_s, self.sampling.max_tokens),
            adapter=self.adapter,
            pictures=list(self.pictures),
            partition=self.partition,
            weights=self.weights,
        )
        submit = Submit(
            request_id=self.request_id,
            gateway=gateway,
            model=self.model,
            slo=self.slo,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            tenant=self.tenant,
            attempt=attempt,
            wants_place=self.wants_place and not outputs,
            done_tokens=done_tokens,
            waited_s=waited_s if attempt else 0.0,
            needs=self.sampling.needs,
            prefix=self._prefix(),
            traceparent=parent,
        )
        return payload, submit

    def _prefix(self) -> PromptPrefix | None:
        if not self.block_tokens or self.pictures:  # names are of tokens, and images have the same ones
            return None
        return prompt_prefix(self.prompt_token_ids, self.block_tokens, owner_of(self.adapter, self.partition))

    def _work(self, outputs: list[Output]) -> tuple[int, int]:
        """Tokens to compute before the first new one, and tokens that may be drawn, over all candidates.

        A resumed request has a longer prefill and fewer tokens to go; a choice that has ended is no work any more.
        """
        sampling = self.sampling
        choices = outputs or [Output()] * sampling.num_choices
        num_done = [len(output.token_ids) for output in choices if not output.finish_reason]
        num_others = sampling.num_candidates - sampling.num_choices  # candidates that the client will not see
        num_left = sampling.max_tokens * (len(num_done) + num_others) - sum(num_done)
        return self.num_prompt_tokens + sum(num_done), num_left

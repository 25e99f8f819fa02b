"""What a client asked for, complete and checked, and the messages that put an attempt of it into the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.messages import Output, Payload, Sampling, Submit
from shared.slo import Slo


@dataclass(frozen=True)
class Job:
    """One admitted request, complete and checked."""

    request_id: str
    model: str
    prompt_token_ids: list[int]
    sampling: Sampling
    stops: Sequence[str]
    token_bytes: Sequence[bytes] = field(repr=False)
    slo: Slo
    tenant: str
    traceparent: str = ""

    def messages(self, gateway: str, attempt: int, output_token_ids: Sequence[int]) -> tuple[Payload, Submit]:
        """What the queue needs for an attempt: everything the client has, and what is left to do."""
        num_output = len(output_token_ids)
        payload = Payload(
            request_id=self.request_id,
            attempt=attempt,
            gateway=gateway,
            model=self.model,
            prompt_token_ids=self.prompt_token_ids,
            sampling=self.sampling,
            outputs=[Output(list(output_token_ids))] if output_token_ids else [],
            traceparent=self.traceparent,
        )
        submit = Submit(
            request_id=self.request_id,
            gateway=gateway,
            model=self.model,
            slo=self.slo,
            # the queue plans work: a resumed request has a longer prefill and fewer tokens to go
            prompt_tokens=len(self.prompt_token_ids) + num_output,
            max_tokens=self.sampling.max_tokens - num_output,
            tenant=self.tenant,
            attempt=attempt,
            traceparent=self.traceparent,
        )
        return payload, submit

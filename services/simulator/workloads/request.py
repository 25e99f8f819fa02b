"""One request of a workload."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_LIMIT_TOKENS = 1024
"""What clients allow an answer to have, as a rule; 99 % of ShareGPT's are shorter."""


class WorkloadError(ValueError):
    """A workload that cannot be made; the text says what is wrong with what was asked for."""


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """What a client asks, when, and how long its answer will be: only the simulated model knows that before."""

    arrival_s: float
    model: str
    slo: str
    """Name of its class."""
    prompt_tokens: int
    output_tokens: int
    tenant: str = "default"
    hash_ids: tuple[int, ...] = ()
    """What its prompt is (`shared.files.length_trace`); empty: it begins as no other does."""

    @property
    def max_tokens(self) -> int:
        """The limit that the client sets."""
        return max(DEFAULT_LIMIT_TOKENS, self.output_tokens)

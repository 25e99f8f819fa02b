"""When the tokens of one answer came, and whether its promise was kept. Times are given in, never read."""

from __future__ import annotations

from dataclasses import dataclass

from shared.slo import Slo


@dataclass
class Timeline:
    """Arrival and tokens of one request, in seconds on one clock."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_tokens: int = 0

    def add(self, num_tokens: int, now: float) -> None:
        """Tokens have come."""
        if num_tokens:
            self.first_token_s = now if self.first_token_s is None else self.first_token_s
            self.last_token_s = now
            self.num_tokens += num_tokens

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time of a token after the first."""
        if self.first_token_s is None or self.last_token_s is None or self.num_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.num_tokens - 1)

    @property
    def e2e_s(self) -> float | None:
        """From arrival to the last token."""
        return None if self.last_token_s is None else self.last_token_s - self.arrival_s

    def keeps(self, slo: Slo) -> bool:
        """Whether a complete answer with these times kept the promise; an answer without a token keeps it in no way."""
        pairs = [(self.ttft_s, slo.ttft_s), (self.tpot_s, slo.tpot_s), (self.e2e_s, slo.deadline_s)]
        in_time = all(actual is None or promised is None or actual <= promised for actual, promised in pairs)
        return in_time and self.num_tokens > 0

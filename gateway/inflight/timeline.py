"""When the tokens of one answer came, and whether its promise was kept. Times are given in, never read."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.messages.requests.slo import Slo


@dataclass
class Timeline:
    """Arrival and tokens of one request, in seconds on one clock."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_thought_tokens: int = 0
    """Of all choices, those that are thoughts."""
    _num_tokens: dict[int, int] = field(default_factory=dict)  # by choice

    def add(self, num_tokens: int, now: float, choice: int = 0, *, num_thought_tokens: int = 0) -> None:
        """Tokens of a choice have come; of all so far, so many more turned out to be thoughts."""
        self.num_thought_tokens += num_thought_tokens
        if num_tokens:
            if self.first_token_s is None:
                self.first_token_s = now
            self.last_token_s = now
            self._num_tokens[choice] = self._num_tokens.get(choice, 0) + num_tokens

    @property
    def num_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(self._num_tokens.values())

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time of a token after the first, in the longest choice: all of them come at the same time."""
        num_steps = max(self._num_tokens.values(), default=0) - 1
        if self.first_token_s is None or self.last_token_s is None or num_steps < 1:
            return None
        return (self.last_token_s - self.first_token_s) / num_steps

    @property
    def e2e_s(self) -> float | None:
        """From arrival to the last token."""
        return None if self.last_token_s is None else self.last_token_s - self.arrival_s

    def keeps(self, slo: Slo) -> bool:
        """Whether a complete answer with these times kept the promise; an answer without a token keeps it in no way."""
        pairs = [(self.ttft_s, slo.ttft_s), (self.tpot_s, slo.tpot_s), (self.e2e_s, slo.deadline_s)]
        in_time = all(actual is None or promised is None or actual <= promised for actual, promised in pairs)
        return in_time and self.num_tokens > 0

"""What clients ask for, and the one right answer to each."""

from __future__ import annotations

from dataclasses import dataclass

from shared.messages.requests.payload import Sampling
from shared.messages.requests.slo import Slo

VOCAB_SIZE = 97
STOP_TOKEN = 5
STOP = "."
TOKEN_BYTES = [b"." if token == STOP_TOKEN else b"x" for token in range(VOCAB_SIZE)]


def drawn(seed: int, choice: int, position: int) -> int:
    """The token at a place of an answer: whoever draws it, and whenever."""
    return (seed * 7919 + choice * 104_729 + position * position * 31 + position * 17) % VOCAB_SIZE


@dataclass(frozen=True, slots=True)
class Order:
    """One request."""

    request_id: str
    model: str
    slo: Slo
    prompt: list[int]
    sampling: Sampling
    drawn_tokens: int
    """Each choice ends by itself after so many, unless a limit or a stop string ends it before."""
    has_stop: bool
    comes_s: float
    leaves_s: float | None
    """When its client goes away, should there be no answer by then."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a choice."""
        return (STOP,) if self.has_stop else ()

    def num_drawn(self) -> int:
        """Tokens of a choice as the node draws them, which knows nothing of stop strings."""
        return min(self.drawn_tokens, self.sampling.max_tokens)

    def answer(self, choice: int) -> tuple[list[int], str]:
        """All tokens of a choice, and how it ends."""
        tokens = [drawn(self.sampling.seed, choice, position) for position in range(self.num_drawn())]
        if self.has_stop and STOP_TOKEN in tokens:
            return tokens[: tokens.index(STOP_TOKEN) + 1], "stop"
        return tokens, self.end_by_node

    @property
    def end_by_node(self) -> str:
        """How a choice ends that no stop string ends."""
        return "length" if self.drawn_tokens >= self.sampling.max_tokens else "stop"

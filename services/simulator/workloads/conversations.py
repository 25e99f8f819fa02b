"""Users who come back: each request is all that was said before, and a part more."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from services.simulator.workloads.request import WorkloadRequest
from shared.files.length_trace import HASH_TOKENS

ANSWER_TOKENS = 64
STAYS = 3
"""Users begin within so many times as one of them stays: so as many come as leave, in the middle of it."""


@dataclass(frozen=True, slots=True)
class ReturningUsers:
    """Each turn adds `HASH_TOKENS` tokens to what a user's prompt has in common with the next one."""

    num_users: int
    num_turns: int
    turns_per_s: float
    """Of all users, while as many come as leave."""

    @property
    def between_s(self) -> float:
        """From a user's turn to the next, on average."""
        return self.num_users / STAYS / self.turns_per_s

    @property
    def active_tokens(self) -> int:
        """Of all who are there at a time: each is half through, as a rule."""
        return self.num_users * (self.num_turns + 1) * HASH_TOKENS // (2 * STAYS)

    def draw(self, model: str, slo: str, random: Random) -> list[WorkloadRequest]:
        """All turns of all users, in the order of their arrivals; none waits for the answer before.

        Users begin at any time within `STAYS` such stays; half to one and a half `between_s` lie between turns.
        """
        requests = []
        for user in range(self.num_users):
            arrival_s = random.uniform(0.0, STAYS * self.num_turns * self.between_s)
            for turn in range(self.num_turns):
                hash_ids = tuple(user * self.num_turns + part for part in range(turn + 1))
                num_tokens = len(hash_ids) * HASH_TOKENS
                requests.append(WorkloadRequest(arrival_s, model, slo, num_tokens, ANSWER_TOKENS, hash_ids=hash_ids))
                arrival_s += random.uniform(0.5, 1.5) * self.between_s
        return sorted(requests, key=lambda request: request.arrival_s)

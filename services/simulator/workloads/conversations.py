"""Users who come back: each request is all that was said before, and a part more."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from services.simulator.workloads.request import WorkloadRequest
from shared.files.length_trace import HASH_TOKENS

ANSWER_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ReturningUsers:
    """Each turn adds `HASH_TOKENS` tokens to what a user's prompt has in common with the next one."""

    num_users: int
    num_turns: int
    between_s: float
    """From a user's turn to the next, on average; exponential."""

    @property
    def history_tokens(self) -> int:
        """Of all users, when the last turn is over."""
        return self.num_users * self.num_turns * HASH_TOKENS

    def draw(self, model: str, slo: str, random: Random) -> list[WorkloadRequest]:
        """All turns of all users, in the order of their arrivals; nobody waits for the answer before."""
        requests = []
        for user in range(self.num_users):
            arrival_s = random.uniform(0.0, self.between_s)
            for turn in range(self.num_turns):
                hash_ids = tuple(user * self.num_turns + part for part in range(turn + 1))
                num_tokens = len(hash_ids) * HASH_TOKENS
                requests.append(WorkloadRequest(arrival_s, model, slo, num_tokens, ANSWER_TOKENS, hash_ids=hash_ids))
                arrival_s += random.expovariate(1 / self.between_s)
        return sorted(requests, key=lambda request: request.arrival_s)

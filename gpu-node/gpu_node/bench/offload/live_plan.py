"""What `treadle bench offload` measures live, and for how long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PromptAnswer = tuple[int, int]
"""Tokens of a prompt, and of its answer."""

NUM_LOCAL = 4
"""Sequences that the hot engine has memory for: SmolLM2 decodes one in less time than its weights are read."""
NUM_REMOTE = 4
"""That the cold engine lends memory for."""
SPARE_SHARE = 0.15
"""Of a sequence: last blocks are not full, and pages hold whole blocks."""
NUM_HOT = 12
"""Requests at the hot engine at any time: more than both have memory for."""
NUM_LOW = 2
"""At most 30 % of what runs with offload."""
NUM_ROUNDS = 3
"""Of the full run."""
RATE_RATIO = 15
"""Of requests of the hot model, to one of the cold model (Weaver, ATC'25, §5)."""


@dataclass(frozen=True, slots=True)
class LivePlan:
    """Of one set of lengths."""

    name: str
    lengths: tuple[PromptAnswer, ...]
    """Of the hot engine's requests; their KV is made before anything is measured."""
    warm_up_s: float
    """Before each stretch that is measured."""
    seconds: float
    num_rounds: int = 1
    """Of all points."""
    ratio: float = NUM_REMOTE / (NUM_LOCAL + NUM_REMOTE)
    ratios: tuple[float, ...] = ()
    """Of the sweep."""
    num_idle_pairs: int = 3
    """Stretches of the cold engine alone, with polls, and without."""
    idle_s: float = 1.0
    """Each of them."""
    is_whole: bool = False
    """Also with both models on one node of both cores, and with prompts that are computed where they run."""

    cold_lengths: PromptAnswer = (96, 400)
    """Of each request of the cold engine."""
    token_bytes: int = 23_040
    """Of the model's KV."""
    least_kv_bytes: int = 66 << 20
    """With less, pages are so small that blocks of SmolLM2 leave much of each unused."""
    vocabulary: int = 40_000
    """Of the tokens that prompts are made of; SmolLM2 has more."""

    @property
    def longest_tokens(self) -> int:
        """Of a prompt and its answer."""
        return max(map(sum, self.lengths))

    @property
    def local_bytes(self) -> int:
        """Of the hot engine's KV memory: for `NUM_LOCAL` mean sequences at their end, and one of any length."""
        return max(self._bytes(NUM_LOCAL), self.least_kv_bytes)

    @property
    def remote_bytes(self) -> int:
        """That the cold engine lends."""
        return self._bytes(NUM_REMOTE)

    def _bytes(self, number: int) -> int:
        return max(round((number + SPARE_SHARE) * self._mean_tokens), self.longest_tokens) * self.token_bytes

    @property
    def _mean_tokens(self) -> float:
        return sum(map(sum, self.lengths)) / len(self.lengths)


def quick_plan() -> LivePlan:
    """One short run of each point, without the sweep."""
    return LivePlan("560 to 112", ((560, 112),) * NUM_HOT, warm_up_s=1.2, seconds=2.0, idle_s=0.6)


def full_plans(conversations: Sequence[PromptAnswer]) -> list[LivePlan]:
    """PromptAnswer of Azure's ``conversations``, drawn at random; then 512 to 1,024."""
    drawn = random.Random(1).sample(list(conversations), NUM_HOT + NUM_REMOTE)  # noqa: S311 (of a benchmark)
    return [
        LivePlan("azure", tuple(drawn), 3.0, 8.0, NUM_ROUNDS, ratios=(0.15, 0.3, 0.4, 0.6, 0.75), is_whole=True),
        LivePlan("512 to 1024", ((512, 1024),) * NUM_HOT, 3.0, 8.0, NUM_ROUNDS),
    ]

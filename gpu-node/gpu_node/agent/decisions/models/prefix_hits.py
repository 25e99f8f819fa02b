"""How much of the prompts is found in a cache, of late."""

from __future__ import annotations

import math

MEMORY_TOKENS = 20_000.0  # of prompts: a look that is so long ago counts for a third


class PrefixHits:
    """Fading sums, by the number of tokens that were looked up since."""

    def __init__(self) -> None:
        self._queried_tokens = 0.0
        self._cached_tokens = 0.0

    def add(self, queried_tokens: int, cached_tokens: int) -> None:
        """So many tokens of prompts were looked up, and so many of them found."""
        kept = math.exp(-queried_tokens / MEMORY_TOKENS)
        self._queried_tokens = kept * self._queried_tokens + queried_tokens
        self._cached_tokens = kept * self._cached_tokens + cached_tokens

    @property
    def share(self) -> float:
        """Of the tokens of a prompt, those that need not be computed."""
        return self._cached_tokens / self._queried_tokens

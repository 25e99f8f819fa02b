"""How beams fork, without a model: true beam search over probabilities that are made up.

Each draw, every beam has next tokens whose probabilities break a stick: a token takes a part v of what those before it
have left, v ~ Beta(3, 1), independently of everything else. So the first token has 0.75 on average, and the mean
entropy is 0.61 nats (a perplexity of 1.8): an assumption about how sure a chat model is, not a measurement. The
``width`` continuations with the highest log-probability in all are kept; a beam falls out when others' second choices
beat it.

Beams of a real model resemble each other, and so do their probabilities: they stay level for longer than these, which
are independent, so they share less. What this model saves is likely too much; the paper measured 44-66 %.
"""

from __future__ import annotations

import math
from heapq import heappush, heapreplace

from gpu_node.executors.draws.counter import mix, uniform

STICK_SHAPE = 3.0
"""a in Beta(a, 1), which is the a-th root of a uniform number."""


class BeamTree:
    """One request's beams. The same seed gives the same tree."""

    def __init__(self, width: int, seed: int) -> None:
        assert width > 0
        self._width = width
        self._seed = seed
        self._num_draws = 0
        self._scores = [0.0]
        """Log-probability of each beam, highest first."""

    def parents(self, num_living: int) -> list[int]:
        """The beam that each of the best continuations goes on from, best first."""
        assert num_living == len(self._scores)
        best: list[tuple[float, int, int]] = []  # a heap of (score, -beam, -token): the worst in front, ties by place
        for beam, score in enumerate(self._scores):
            left = score
            for token in range(self._width):
                if len(best) == self._width and left <= best[0][0]:
                    break  # nothing that this beam has left can be among the best
                part = self._stick(beam, token)
                found = (left + math.log(part), -beam, -token)
                left += math.log1p(-part)
                if len(best) < self._width:
                    heappush(best, found)
                elif found > best[0]:
                    heapreplace(best, found)
        best.sort(reverse=True)
        self._num_draws += 1
        top = best[0][0]  # only differences count; so they stay small
        self._scores = [score - top for score, _, _ in best]
        return [-beam for _, beam, _ in best]

    def _stick(self, beam: int, token: int) -> float:
        """Part of what is left that a token takes, strictly between 0 and 1."""
        place = (self._num_draws * self._width + beam) * self._width + token
        return math.pow(min(max(uniform(self._seed, place), 1e-9), 1 - 1e-9), 1 / STICK_SHAPE)


def beam_search(width: int, seed: int, request_number: int) -> BeamTree:
    """Beams of one request among many."""
    return BeamTree(width, mix(seed) + request_number)

"""Least squares with no negative unknown, for a handful of unknowns, out of sums over the measurements."""

from __future__ import annotations

from collections.abc import Sequence

Vector = list[float]
MAX_ROUNDS_EACH = 3
"""Rounds for each unknown; Lawson and Hanson's bound in practice."""
TOLERANCE = 1e-12
"""Of a gradient, beside the largest right-hand side."""


class NormalEquations:
    """A θ = v as sums over measurements: A = Σ w x xᵀ, v = Σ w x y."""

    def __init__(self, num_unknowns: int) -> None:
        self.matrix = [[0.0] * num_unknowns for _ in range(num_unknowns)]
        self.vector = [0.0] * num_unknowns

    def add(self, row: Sequence[float], value: float, weight: float, keep: float = 1.0) -> None:
        """One more measurement of θ · ``row``; those before it count ``keep`` times what they did."""
        for i, part in enumerate(row):
            line = self.matrix[i]
            scaled = part * weight
            for j, other in enumerate(row):
                line[j] = line[j] * keep + scaled * other
            self.vector[i] = self.vector[i] * keep + scaled * value

    def solve(self, prior: Sequence[float], prior_weight: float) -> Vector:
        """θ >= 0 that fits best, drawn to ``prior`` as if each unknown had been measured alone with that weight."""
        matrix = [[*line] for line in self.matrix]
        vector = [*self.vector]
        for i, value in enumerate(prior):
            matrix[i][i] += prior_weight
            vector[i] += prior_weight * value
        return nonnegative(matrix, vector)


def nonnegative(matrix: Sequence[Vector], vector: Sequence[float]) -> Vector:
    """Minimise θᵀAθ / 2 - vᵀθ over θ >= 0 for a positive definite A (Lawson, Hanson, 1974, chapter 23).

    Unknowns are freed one by one, the steepest first; one that would become negative on the way is held at 0 again.
    """
    size = len(vector)
    theta = [0.0] * size
    free: list[int] = []
    least = TOLERANCE * max(abs(value) for value in vector) if any(vector) else 0.0
    for _ in range(MAX_ROUNDS_EACH * size):
        slopes = [
            (vector[i] - sum(matrix[i][j] * theta[j] for j in range(size)), i) for i in range(size) if i not in free
        ]
        if not slopes or max(slopes)[0] <= least:
            break
        free.append(max(slopes)[1])
        while True:
            target = dict(zip(free, _solve(matrix, vector, free), strict=True))
            falling = [i for i in free if target[i] <= 0.0]
            if not falling:
                break
            part = min(theta[i] / (theta[i] - target[i]) if theta[i] else 0.0 for i in falling)
            theta = [theta[i] + part * (target[i] - theta[i]) if i in target else 0.0 for i in range(size)]
            free = [i for i in free if theta[i] > 0.0 and not (i in falling and theta[i] < TOLERANCE)]
            theta = [theta[i] if i in free else 0.0 for i in range(size)]
        theta = [target.get(i, 0.0) for i in range(size)]
    return theta


def _solve(matrix: Sequence[Vector], vector: Sequence[float], free: Sequence[int]) -> Vector:
    """The unknowns ``free`` of A θ = v where all others are 0, by elimination: no pivot of such an A is 0."""
    rows = [[*(matrix[i][j] for j in free), vector[i]] for i in free]
    size = len(rows)
    for k in range(size):
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, size + 1):
                rows[i][j] -= factor * rows[k][j]
    solution = [0.0] * size
    for k in reversed(range(size)):
        rest = rows[k][size] - sum(rows[k][j] * solution[j] for j in range(k + 1, size))
        solution[k] = rest / rows[k][k]
    return solution

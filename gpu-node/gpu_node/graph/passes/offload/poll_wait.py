"""How much later offloaded attention comes back because an operator runs on its receiver (Weaver, ATC'25, §4.2).

A sender that offloads attention has K seconds of its own to do meanwhile, and its task takes N seconds of service. A
task that arrives while an operator runs waits for the rest of it. K - N, the slack, hides that much of the wait.
"""

from __future__ import annotations

from collections.abc import Iterable


def blocked_s(left_s: float, slack_s: float) -> float:
    """Equation 1: what the sender waits if ``left_s`` of an operator are left when its task arrives."""
    return max(left_s - slack_s, 0.0)


def operator_wait_s(duration_s: float, slack_s: float) -> float:
    """Equation 2: the mean of equation 1 over tasks that arrive evenly spread while an operator of T seconds runs.

    ``max(T - (K - N), 0) ** 2 / (2 * T)``. The paper has K of N at least. Where N is longer, every task is late, by
    N - K beside what is left of the operator: ``T / 2 - (K - N)``.
    """
    if slack_s < 0:
        return duration_s / 2 - slack_s
    return blocked_s(duration_s, slack_s) ** 2 / (2 * duration_s) if duration_s else 0.0


def expected_wait_s(durations_s: Iterable[float], slack_s: float) -> float:
    """Equation 3: the same over all operators of a receiver that is never idle, each met in proportion to its time.

    ``W = sum of max(T_i - (K - N), 0) ** 2 / (2 * sum of T_i)``. 0.0 without an operator.
    """
    total_s = weighted = 0.0
    for one in durations_s:
        total_s += one
        weighted += one * operator_wait_s(one, slack_s)
    return weighted / total_s if total_s else 0.0

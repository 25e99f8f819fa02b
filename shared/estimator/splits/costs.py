"""What it costs the promises that so many nodes prefill and so many decode, or that all do both.

Per second, of all that comes of a model, in broken promises: Σ λ (P(late) + `SECONDS_WEIGHT` * answer_s / promised_s)
for each kind of requests with its rate λ. Late is who has the first token later than promised, or those behind it, or
the end; where nearly none are in danger time decides, as at which node a request begins
(`services.queue_manager.queues.immediate_start`).

**Apart**, p nodes prefill and d decode. A prompt takes S of a device, so the p are busy for X = λ E[S] / p, and it
waits as `waits` says. What waits already is work that comes within the horizon, too. Behind its first token a request
moves, over a network with a queue of the same kind. Of z draws a second and node, n run together by Little's law, where
a step takes s + n r ::

    n = z s / (1 - z r)        TPOT = s + n r

up to the places of a batch, behind which requests wait.

**Together**, each of b nodes spends u of its time on steps with prompts, which take ℓ; in each step all n that run
draw ::

    TPOT = 1 / (u / ℓ + (1 - u) / (s + n r))        n = z TPOT

How many prompts come while an answer is drawn is Poisson distributed, so short answers beside long prompts vary: the
variance of what they are held up by is duration * λ / b * E[S²] * (1 - (s + n r) / ℓ)². All times are taken for normal
and independent, with the mean and the variance that follow.

Of unlike nodes, the mean of them counts. Nodes of both phases beside others have their part of what comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shared.estimator.hand_over import MOVE_S
from shared.estimator.splits.waits import HORIZON_S, NONE, QueueWait, late_share, queue_wait
from shared.estimator.splits.works import KindWork, PhaseLoad, by_rate, total_per_s

SECONDS_WEIGHT = 0.05  # of shares of promised times beside promises that are broken
NUM_ROUNDS = 12  # of n = z TPOT, each a step nearer: n grows in them, and not beyond the batch


class NodeSplit(NamedTuple):
    """How many nodes serve what."""

    num_prefill: int
    num_decode: int
    num_both: int

    @property
    def serving(self) -> NodeSplit:
        """What it comes to (`shared.estimator.phases`): nobody's part is done by all, and none hands over to nobody."""
        prefill, decode, both = self
        if prefill and decode:
            return self
        if prefill or not both:
            return NodeSplit(0, 0, sum(self))
        return NodeSplit(0, 0, both)


class Judged(NamedTuple):
    """What a split costs."""

    cost: float
    """Broken promises a second."""
    num_running: float
    """At a node that decodes."""


def judged(works: Sequence[KindWork], load: PhaseLoad, split: NodeSplit) -> Judged:
    """What it costs that nodes are split like this; 0.0 where nothing comes. O(kinds)."""
    if not works:
        return Judged(0.0, 0.0)
    prefill, decode, both = split.serving
    apart = (prefill + decode) / (prefill + decode + both)
    parts = [Judged(0.0, 0.0)]
    if apart > 0.0:
        parts.append(_apart(works, load, apart, prefill, decode))
    if apart < 1.0:
        parts.append(_together(works, load, 1 - apart, both))
    return Judged(math.fsum(part.cost for part in parts), max(part.num_running for part in parts))


def change_cost(works: Sequence[KindWork], num_changed: int, num_running: float) -> float:
    """Promises that are broken where so many nodes change, each with so many that run.

    These leave one after the other, each with its KV, or stay beside what comes, if that holds them up less: the jth
    for `MOVE_S` + j move_s. Of what it was promised that is a share, and so likely is it late by that, at most. The way
    there costs as much as the way back.
    """
    number = max(1.0, num_running)
    held_s = [MOVE_S + (number + 1) / 2 * work.move_s for work in works]
    late = by_rate(works, [min(1.0, one / work.promised_s) for one, work in zip(held_s, works, strict=True)])
    return num_changed * number * late


def _queue(
    each_s: Sequence[float], works: Sequence[KindWork], per_s: float, servers: int, backlog_s: float
) -> QueueWait:
    mean_s = by_rate(works, each_s)
    if mean_s <= 0.0:
        return NONE
    # what follows from prompts varies as they do
    stds = [work.std_prompt_s / (work.prompt_s(0.0) or 1.0) for work in works]
    square = by_rate(works, [one**2 * (1 + std**2) for one, std in zip(each_s, stds, strict=True)])
    busy = (per_s * mean_s + backlog_s / HORIZON_S) / servers
    return queue_wait(busy, servers / mean_s, square / (2 * mean_s**2), servers)


def _places(busy: float, per_s: float, num_places: float) -> QueueWait:
    """Of answers whose lengths vary as much as their mean."""
    return queue_wait(busy, per_s, 1.0, num_places)


def _apart(works: Sequence[KindWork], load: PhaseLoad, share: float, prefill: int, decode: int) -> Judged:
    per_s = share * total_per_s(works)
    backlog_s = share * _backlog_s(works, load)
    prompts = _queue([work.prompt_s(0.0) for work in works], works, per_s, prefill, backlog_s)
    moves = _queue([work.network_s for work in works], works, per_s, min(prefill, decode), 0.0)
    mean_draws = by_rate(works, [work.draws for work in works])
    draws_per_s = share * (total_per_s(works) * mean_draws + load.rest_tokens / HORIZON_S) / decode
    step_s, row_s, batch = _step(works)
    full_s = step_s + batch * row_s
    most_per_s = batch / full_s if full_s else math.inf
    busy = draws_per_s / most_per_s
    running = draws_per_s * step_s / (1 - draws_per_s * row_s) if busy < 1.0 else batch
    places = _places(busy, decode * most_per_s / max(1.0, mean_draws), decode * batch)
    cost = 0.0
    for work in works:
        first_s = prompts.mean_s + work.first_s(0.0)
        held_s = moves.mean_s + work.pause_s + places.mean_s
        after_s = held_s + work.draws * _draw_s(work.step_s, work.row_s, running)
        std_s = math.hypot(moves.std_s, places.std_s, work.draws * work.row_s * math.sqrt(running))
        cost += share * _cost(work, first_s, math.hypot(prompts.std_s, work.std_prompt_s), after_s, std_s)
    return Judged(cost, running)


def _together(works: Sequence[KindWork], load: PhaseLoad, share: float, nodes: int) -> Judged:
    per_s = share * total_per_s(works)
    backlog = share * _backlog_s(works, load)
    mean_draws = by_rate(works, [work.draws for work in works])
    draws_per_s = share * (total_per_s(works) * mean_draws + load.rest_tokens / HORIZON_S) / nodes
    step_s, row_s, batch = _step(works)
    running, pace_s, slow_s = 0.0, step_s, step_s
    for _ in range(NUM_ROUNDS):
        prompt_s = by_rate(works, [work.prompt_s(running) for work in works])
        prompt_steps = by_rate(works, [work.prompt_steps for work in works])
        plain_s = _draw_s(step_s, row_s, running)
        slow_s = max(plain_s, prompt_s / prompt_steps) if prompt_steps else plain_s
        busy = min(1.0, (per_s * prompt_s + backlog / HORIZON_S) / nodes)
        pace_s = _pace_s(busy, slow_s, plain_s)
        running = min(batch, draws_per_s * pace_s)
    prompts = _queue([work.prompt_s(running) for work in works], works, per_s, nodes, backlog)
    most_per_s = batch / pace_s if pace_s else math.inf
    places = _places(draws_per_s / most_per_s, nodes * most_per_s / max(1.0, mean_draws), nodes * batch)
    held = 1 - (step_s + running * row_s) / slow_s if slow_s else 0.0
    square_s2 = by_rate(works, [work.prompt_s(running) ** 2 + work.std_prompt_s**2 for work in works])
    cost = 0.0
    for work in works:
        first_s = prompts.mean_s + places.mean_s + work.first_s(running)
        first_std_s = math.hypot(prompts.std_s, places.std_s, work.std_prompt_s)
        after_s = work.draws * pace_s
        held_s = held * math.sqrt(after_s * per_s / nodes * square_s2)
        cost += share * _cost(
            work, first_s, first_std_s, after_s, math.hypot(held_s, work.draws * work.row_s * math.sqrt(running))
        )
    return Judged(cost, running)


def _draw_s(step_s: float, row_s: float, num_running: float) -> float:
    """Of a step in which so many draw on average: one at least, or it were none. (Learnt costs may be all rows'.)"""
    return max(step_s + num_running * row_s, row_s)


def _pace_s(busy: float, slow_s: float, plain_s: float) -> float:
    """Between two tokens, where so much of the time is slow steps."""
    if not plain_s:
        return slow_s if busy >= 1.0 else 0.0
    return 1 / (busy / slow_s + (1 - busy) / plain_s)


def _cost(work: KindWork, first_s: float, first_std_s: float, after_s: float, after_std_s: float) -> float:
    kind = work.kind
    kept = 1 - late_share(first_s, first_std_s, kind.start_s)
    kept *= 1 - late_share(after_s, after_std_s, work.draws * kind.token_s) if work.draws else 1.0
    kept *= 1 - late_share(first_s + after_s, math.hypot(first_std_s, after_std_s), kind.end_s)
    return kind.rate_per_s * (1 - kept + SECONDS_WEIGHT * (first_s + after_s) / work.promised_s)


def _step(works: Sequence[KindWork]) -> tuple[float, float, float]:
    """Seconds of a step, of a row in it, and places, of a batch of all kinds: each for as long as it is there."""
    weights = [work.kind.rate_per_s * max(1.0, work.draws) for work in works]
    total = math.fsum(weights)
    row_s = math.fsum(weight * work.row_s for weight, work in zip(weights, works, strict=True)) / total
    per_place = math.fsum(weight / work.batch for weight, work in zip(weights, works, strict=True)) / total
    return works[0].step_s, row_s, 1 / per_place


def _backlog_s(works: Sequence[KindWork], load: PhaseLoad) -> float:
    """Device time of the prompts that wait."""
    tokens = by_rate(works, [work.kind.shape.mean_prompt_tokens for work in works])
    if not tokens:
        return 0.0
    return load.waiting_prompt_tokens / tokens * by_rate(works, [work.prompt_s(0.0) for work in works])

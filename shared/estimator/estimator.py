"""Request waiting time (QLM, SoCC'24 §5): when each group of a virtual queue starts and ends, and how sure that is.

The paper: ``W_q = Σ_{i<q} O_i / Θ`` with ``Σ O_i ~ N((q-1) μ, (q-1) σ²)``, so ``W_q ~ N((q-1) μ / Θ, (q-1) σ² / Θ²)``:
the relative error falls as 1/√q. It lets a request wait for all tokens ahead of it. In continuous batching it waits for
a *place*: at its start the batch is still full of others with work left. Work is kept, so::

    W_q = work that runs now + work of those ahead - work left in the batch when it starts            (device seconds)

What runs now is known, those ahead cost ``request_s`` each (`shared.estimator.batching`), and a full batch has b * m *
a seconds left on average, m = E[O²] / 2 E[O] over all that it is made of. With r running and q waiting ahead this is::

    W_q = R_now * a + q * request_s - max(0, b * m * a - request_s),    0 while r + q < b, but for the prompts before

which is (q + 1) * request_s in a batch that is full and in its steady state (R_now = b * m): one request ends in that
time, and gives its place. (With b = 1 nothing is left when it starts.) Where all of a batch began together with outputs
of equal lengths, they also end together, and starts come in waves around this line, up to half a batch beside it.

Its variance counts the ends, k, that have to come first. So many renewal processes side by side are a Poisson process
at first and follow their law of large numbers later (Cox, Renewal Theory, 1962, §4.5; gamma lengths, v = σ²/μ²)::

    Var W = request_s² * min(k, v k + b (1 - v²) / 6)         → k σ² / Θ², the paper's, for large k

To it comes what is wrong for all alike: the standard error of the learnt mean length, and of the model itself, which
errs by `MODEL_ERROR` of the mean.

A node may have prompts to compute of requests that run already: what they take of the device comes to R_now * a, and
who begins at once has its first token behind them.

A group of another model waits for the last of those before it (C = max_q C_q, C_q = W_q + P + D_q, D = O ε d, where
ε d is the time of a step at that batch), and for the swap. Running groups behind a waiting one give way: their KV is
moved out first, and what they have left is done where they stand in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from shared.estimator.backlog import Backlog
from shared.estimator.batching import (
    PRIOR_KV_BYTES_PER_S,
    PRIOR_SWAP_S,
    Batching,
    batching,
    full_batch,
    longest_tokens,
    rate_of,
)
from shared.estimator.mixture import mixture
from shared.estimator.overtaking import Stream, overtaken
from shared.estimator.wait import NEVER, NOW, Wait, waiting_time
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad

__all__ = [
    "MODEL_ERROR",
    "NEVER",
    "GroupForecast",
    "Wait",
    "cold_s",
    "drain",
    "drain_s",
    "evict_s",
    "forecast",
    "swap_s",
    "throughput",
]

MODEL_ERROR = 0.05  # relative error of predicted work, as a standard deviation


# --- one group on one node: plain numbers, for tables ----------------------------------------------------------------


def throughput(node: NodeState, load: GroupLoad) -> float:
    """Θ: output tokens a second of the group alone on the node; fewer members than places make a smaller batch.

    0.0 where its model is broken.
    """
    return 0.0 if load.model in node.broken_models else batching(node, load, load.num_requests).tokens_per_s


def drain(node: NodeState, load: GroupLoad) -> Wait:
    """How long the group keeps those behind it waiting, in a batch that is full: Σ O / Θ, with its spread.

    Nothing where its model is broken: its members are told so at once.
    """
    if load.model in node.broken_models:
        return NOW
    work = batching(node, load)
    waiting = waiting_time(load.num_waiting, work.output_tokens, work.std_output_tokens, work.tokens_per_s)
    running = Wait(load.running_output_tokens * work.token_s, load.num_waiting * work.error_s)
    return waiting.then(running).give_or_take(MODEL_ERROR)


def drain_s(node: NodeState, load: GroupLoad) -> float:
    """Mean of `drain`."""
    return drain(node, load).mean_s


def swap_s(node: NodeState, from_model: str, to_model: str) -> float:
    """Until a node that holds ``from_model`` by then could serve ``to_model``."""
    if from_model == to_model:
        return 0.0
    load_s = rate_of(node, to_model).load_s
    if load_s == 0.0 and to_model == node.model:  # it is loaded now, but will not be then
        return node.swap_s or PRIOR_SWAP_S
    return load_s


def evict_s(node: NodeState, load: GroupLoad) -> float:
    """Until the KV of the group's running members has been moved out of the node's device, or back in."""
    return load.kv_tokens * rate_of(node, load.model).kv_token_bytes / (node.kv_bytes_per_s or PRIOR_KV_BYTES_PER_S)


def cold_s(node: NodeState, load: GroupLoad) -> float:
    """What a node that has nothing of the prompts of waiting members takes longer than the one that has (`warm_at`).

    The difference of c (`shared.estimator.batching`) for each of them.
    """
    if not load.warm_at or load.warm_at == node.node:
        return 0.0
    warm = batching(node, replace(load, found_tokens=load.warm_tokens))
    return load.num_waiting * (batching(node, replace(load, found_tokens=0.0)).prompt_s - warm.prompt_s)


class Prompts(NamedTuple):
    """Prompts that have not been computed, of requests that count as running."""

    wait_s: float
    """Until they are."""
    work_s: float
    """What they take of the device meanwhile."""


NO_PROMPTS = Prompts(0.0, 0.0)


# --- a whole queue ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """When a group of a virtual queue starts and ends, in seconds from now."""

    group: str
    num_waiting: int
    begin: Wait
    """Until the node serves its model; `NEVER` where the model is broken."""
    completion: Wait
    """Until the last token of the last member (QLM's C = max C_q)."""
    ahead: Backlog
    """Requests of its model before its waiting members, from ``begin`` on."""
    work: Batching

    @property
    def start(self) -> Wait:
        """Until the first waiting member has its first token; no time where none waits."""
        return self.wait_at(0) if self.num_waiting else NOW

    @property
    def last_start(self) -> Wait:
        """Likewise of the last one."""
        return self.wait_at(self.num_waiting - 1) if self.num_waiting else NOW

    def wait_at(self, num_ahead: float) -> Wait:
        """Until the first token of the member behind so many waiting members of the group."""
        if self.begin == NEVER:
            return NEVER
        place, prompt = self.place_and_prompt(num_ahead)
        return place.then(prompt).give_or_take(MODEL_ERROR)

    def place_and_prompt(self, num_ahead: float, streams: Sequence[Stream] = ()) -> tuple[Wait, Wait]:
        """The same in two parts, without the model's own error: until it has a place, and from then on.

        ``streams`` of newcomers go before it as long as it has no place.
        """
        if self.begin == NEVER:
            return NEVER, NOW
        place, prompt = self.ahead.place_and_prompt(self.work, num_ahead)
        return overtaken(self.begin.then(place), streams), prompt


def forecast(
    node: NodeState, queue: list[GroupLoad], prompts: Prompts = NO_PROMPTS, ready_s: float = 0.0
) -> list[GroupForecast]:
    """Walk a node's virtual queue from its head; ``prompts`` are those of requests that count as running.

    ``ready_s`` is how long the node still loads its model (`NodeState.ready_in_s`).
    Groups of a model that is broken there never start, and hold no other up: their clients are told.
    """
    walk = _Walk(node, queue, prompts, ready_s)
    return [walk.step(load) for load in queue]


class _Walk:
    """Goes along a queue; times do not have the model's own error yet."""

    def __init__(self, node: NodeState, queue: list[GroupLoad], prompts: Prompts, ready_s: float) -> None:
        self._node = node
        self._model = node.model
        self._begin = self._end = Wait(ready_s, 0.0)
        self._batches = {model: full_batch(node, load) for model, load in mixture(queue).items()}
        self._backlog = Backlog(busy_s=prompts.work_s, prompts_s=prompts.wait_s)
        self._to_evict_s = _to_evict_s(node, queue)

    def step(self, load: GroupLoad) -> GroupForecast:
        """The next group."""
        work = batching(self._node, load, among=self._batches[load.model])
        if load.model in self._node.broken_models:
            return GroupForecast(load.group, load.num_waiting, NEVER, NEVER, Backlog(), work)
        if load.model != self._model:
            self._swap(load.model)
        ahead = self._backlog.with_running(work, load.num_running, load.running_output_tokens)
        self._backlog = ahead.with_waiting(work, load.num_waiting)
        num_together = min(1.0, self._backlog.places) * work.batch
        completion = self._begin.then(_completion(ahead, work, load, num_together))
        self._end = max(self._end, completion, key=lambda wait: wait.mean_s)
        return GroupForecast(
            load.group, load.num_waiting, self._begin, completion.give_or_take(MODEL_ERROR), ahead, work
        )

    def _swap(self, model: str) -> None:
        """All before have ended or have been evicted, and the model is loaded."""
        swap = Wait(self._to_evict_s + swap_s(self._node, self._model, model), 0.0)
        self._begin = self._end = self._end.then(swap)
        self._model, self._backlog, self._to_evict_s = model, Backlog(), 0.0


def _to_evict_s(node: NodeState, queue: list[GroupLoad]) -> float:
    """For the KV of running groups behind the first group that waits for another model."""
    others = [place for place, load in enumerate(queue) if load.model != node.model]
    behind = queue[others[0] :] if others else []
    return sum(evict_s(node, load) for load in behind if load.num_running)


def _completion(ahead: Backlog, work: Batching, load: GroupLoad, num_together: float) -> Wait:
    """C = W + P + D of the last request: of those that run, or of those that start last."""
    token_s = work.token_at(num_together)
    std_s = work.std_output_tokens * token_s
    last = NOW
    if load.num_running:
        left = load.running_output_tokens / load.num_running
        last = Wait(longest_tokens(left, work.std_output_tokens, load.num_running, load.max_tokens) * token_s, std_s)
    if load.num_waiting:
        num_last = min(load.num_waiting, work.batch)
        longest = longest_tokens(work.output_tokens, work.std_output_tokens, num_last, load.max_tokens)
        start = ahead.first_token(work, load.num_waiting - 1)
        last = max(last, start.then(Wait((longest - 1) * token_s, std_s)), key=lambda wait: wait.mean_s)
    return last

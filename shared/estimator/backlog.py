"""Work of one model that stands in line on a node: what the next request of it has to wait for.

The formulas, and why they hold, are in `shared.estimator.estimator`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shared.estimator.batching import Batching
from shared.estimator.wait import NOW, Wait

STEP_SHARE = 0.5  # of a step that is on when a request comes: on average still to go
UNIFORM_STD = 12**-0.5  # of what is anywhere within a step


@dataclass(frozen=True, slots=True)
class Backlog:
    """Sums over the requests in line since the model serves, the running ones first."""

    num_requests: float = 0.0
    places: float = 0.0
    """What they take of a batch, which has 1.0; beyond that they wait."""
    busy_s: float = 0.0
    """Device time that they still need."""
    whole_s: float = 0.0
    """The same with what the running ones have had."""
    prompts_s: float = 0.0
    """Prompts of those that need not wait for a place."""
    tokens: float = 0.0
    """Σ O of their whole outputs, in the mean."""
    residual_token_s: float = 0.0
    """Σ O² b a / 2: over ``tokens``, it is the device time that a full batch of them has left at any time."""
    variance_s2: float = 0.0
    """Of ``whole_s``."""
    error_s: float = 0.0
    """Standard error of ``whole_s``: lengths that are not well known yet are wrong for all alike."""
    runs: bool = False
    """Some run, so a request that comes now waits for the step that is on."""

    def with_running(self, work: Batching, num_requests: float, left_tokens: float) -> Backlog:
        """Behind requests that run and have so many tokens left, all together."""
        if not num_requests:
            return self
        return self._with(work, num_requests, left_tokens * work.token_s, 0.0, runs=True)

    def with_waiting(self, work: Batching, num_requests: float) -> Backlog:
        """Behind requests that have not begun."""
        num_at_once = min(num_requests, max(0.0, 1.0 - self.places) * work.batch)
        prompts_s = num_at_once * work.burst_s
        return self._with(work, num_requests, num_requests * work.request_s, prompts_s, runs=self.runs)

    def first_token(self, work: Batching, num_ahead: float) -> Wait:
        """Until the next request but ``num_ahead`` has its first token."""
        place, first_token = self.place_and_prompt(work, num_ahead)
        return place.then(first_token)

    def place_and_prompt(self, work: Batching, num_ahead: float) -> tuple[Wait, Wait]:
        """The same in two parts: until it has a place (no time where there is one), and from then on."""
        ahead = self.with_waiting(work, num_ahead)
        num_running = min(ahead.places, 1.0) * work.batch
        step_s = work.step_at(num_running)
        first_token = Wait(work.first_token_at(num_running), math.hypot(step_s * UNIFORM_STD, work.std_prompt_s))
        if not ahead.has_place(work):
            return ahead._place(), first_token
        num_prompts = ahead.prompts_s / work.burst_s if work.burst_s else 0.0
        rest_s = STEP_SHARE * step_s if self.runs else 0.0
        return NOW, Wait(ahead.prompts_s + rest_s, num_prompts**0.5 * work.std_prompt_s).then(first_token)

    def has_place(self, work: Batching) -> bool:
        """Whether one more begins at once. A node without requests has a place for each, however small its batch."""
        return not self.num_requests or self.places + 1.0 / work.batch <= 1.0

    def _with(self, work: Batching, num_requests: float, busy_s: float, prompts_s: float, *, runs: bool) -> Backlog:
        residual_s = work.square_tokens * work.batch * work.token_s / 2
        return Backlog(
            num_requests=self.num_requests + num_requests,
            places=self.places + num_requests / work.batch,
            busy_s=self.busy_s + busy_s,
            whole_s=self.whole_s + num_requests * work.request_s,
            prompts_s=self.prompts_s + prompts_s,
            tokens=self.tokens + num_requests * work.output_tokens,
            residual_token_s=self.residual_token_s + num_requests * residual_s,
            variance_s2=self.variance_s2 + num_requests * work.std_request_s**2,
            error_s=self.error_s + num_requests * work.error_s,
            runs=runs,
        )

    def _place(self) -> Wait:
        """Until the batch has room for one more, by the ends that this takes."""
        residual_s = self.residual_token_s / self.tokens if self.tokens else 0.0  # of answers that are about to end
        request_s = self.whole_s / self.num_requests
        mean_s = self.busy_s - max(0.0, residual_s - request_s)
        num_ends = max(0.0, self.num_requests - self.num_requests / self.places) + 1.0
        square = self.variance_s2 / (self.num_requests * request_s**2)  # of the coefficient of variation
        law = num_ends * square
        if square < 1.0:
            law = min(num_ends, law + self.num_requests / self.places * (1 - square**2) / 6)
        std_s = math.hypot(law**0.5 * request_s, self.error_s * num_ends / self.num_requests)
        return Wait(max(mean_s, self.prompts_s), std_s)

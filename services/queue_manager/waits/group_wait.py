"""What a group of a queue has to expect: when its members start, with the newcomers that go ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from services.queue_manager.queues.batch_limit import SLOWEST
from shared.estimator.estimator import MODEL_ERROR, GroupForecast
from shared.estimator.overtaking import Stream, overtaken
from shared.estimator.slack import BatchSlack, patient
from shared.estimator.wait import NOW, Wait

PLAN_SHARE = 0.5  # of how far two places are apart, as a standard deviation, where a plan is expected to choose one
SUM_ERROR = 2 * MODEL_ERROR  # relative, of sums that were made when groups grew last: what was learnt since is missing


@dataclass(frozen=True, slots=True)
class Served:
    """A group in a batch of some size."""

    forecast: GroupForecast | None
    """If none came; None behind the head of the queue, where it is known only how long all before it takes."""
    streams: Sequence[Stream]
    """Of newcomers that go ahead."""
    behind_s: float
    """What the forecast does not know of the work before it."""
    prompts_s: float = 0.0
    """Rate of the variance of what prompts of all that come add to steps."""

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Of the member behind so many others, if none came."""
        place, prompt = (NOW, NOW) if self.forecast is None else self.forecast.place_and_prompt(position)
        beside_s = sqrt(self.prompts_s * prompt.mean_s)  # prompts of as many stand before it, or are in its steps
        return later(place, self.behind_s), prompt.then(Wait(0.0, beside_s))


@dataclass(frozen=True, slots=True)
class Slack:
    """For how long the members of a group can wait for headroom (`batch_limit`), and what that costs."""

    first_s: float
    """Of the first that waits."""
    member_s: float
    """By how much each has more than the one before."""
    pace: float
    """Throughput of the batch that leaves headroom, of a full one's."""


@dataclass(frozen=True, slots=True)
class GroupWait:
    """When the waiting members of a group start."""

    full: Served
    """In a batch that takes as many as fit."""
    small: Served | None
    """In one that leaves headroom; None where that is not asked for."""
    slack: Slack
    widened: Callable[[Wait], Wait]
    """What is learnt of the spread."""

    @property
    def served(self) -> Served:
        """As its first member is served now."""
        return self.small if self.small is not None and self.slack.first_s > 0.0 else self.full

    def wait_at(self, position: int) -> Wait:
        """Until the first token of the member behind so many others."""
        place, prompt = self.place_and_prompt(position)
        return self.widened(place).then(prompt)

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Until it has a place, by the model's own spread, and from then on."""
        place, prompt = self._overtaken(position)
        if self.full.forecast is None:
            return place, NOW
        return place.give_or_take(MODEL_ERROR), prompt.give_or_take(MODEL_ERROR)

    def _overtaken(self, position: int) -> tuple[Wait, Wait]:
        """With newcomers that go ahead. A member that has no slack has its prompt in the full batch, too."""
        full, prompt = self.full.place_and_prompt(position)
        slack_s = self.slack.first_s + position * self.slack.member_s
        if self.small is None or slack_s <= 0.0:
            return overtaken(full, self.full.streams), prompt
        small, prompt = self.small.place_and_prompt(position)
        return patient(small, self.small.streams, BatchSlack(slack_s, self.slack.pace, SLOWEST, full)), prompt


def later(wait: Wait, seconds: float) -> Wait:
    """So much later, by sums that were made when the groups behind the head grew last."""
    return Wait(wait.mean_s + seconds, hypot(wait.std_s, SUM_ERROR * seconds)) if seconds else wait

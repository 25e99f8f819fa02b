"""What a group of a queue has to expect: when its members start, with the newcomers that go ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot

from services.queue_manager.queues.batch_limit import SLOWEST
from shared.estimator.estimator import MODEL_ERROR, GroupForecast
from shared.estimator.overtaking import Stream, overtaken
from shared.estimator.slack import BatchSlack, patient
from shared.estimator.wait import NOW, Wait

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

    def place_and_prompt(self, position: int) -> tuple[Wait, Wait]:
        """Of the member behind so many others, if none came."""
        place, prompt = (NOW, NOW) if self.forecast is None else self.forecast.place_and_prompt(position)
        return later(place, self.behind_s), prompt


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
        full, _ = self.full.place_and_prompt(position)
        small, prompt = (self.small or self.full).place_and_prompt(position)
        place = self._overtaken(full, small, position)
        if self.full.forecast is None:
            return place, NOW
        return place.give_or_take(MODEL_ERROR), prompt.give_or_take(MODEL_ERROR)

    def _overtaken(self, full: Wait, small: Wait, position: int) -> Wait:
        if self.small is None:
            return overtaken(full, self.full.streams)
        slack_s = self.slack.first_s + position * self.slack.member_s
        if slack_s <= 0.0:
            return overtaken(full, self.full.streams)
        return patient(small, self.small.streams, BatchSlack(slack_s, self.slack.pace, SLOWEST, full))


def later(wait: Wait, seconds: float) -> Wait:
    """So much later, by sums that were made when the groups behind the head grew last."""
    return Wait(wait.mean_s + seconds, hypot(wait.std_s, SUM_ERROR * seconds)) if seconds else wait

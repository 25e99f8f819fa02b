"""What happened in a simulated cluster: outcomes, and what the messages between its services tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from services.queue_manager.waits.predictions import Predictions
from services.simulator.cluster.clients import ClientOutcome
from shared.messages.message import Message
from shared.messages.nodes.nodes import BOTH, NodeUp, Phases
from shared.messages.requests.requests import HANDED_OVER, Evicted, Finished, Pulled, Submit

MAX_PREDICTIONS = 1_000
"""Newcomers of a run whose wait is predicted, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the estimator said of a request when it came."""

    number: int
    wait_s: float
    """Mean time until its first token."""
    wait_p90_s: float


@dataclass(slots=True)
class Stay:
    """Requests of one group on one node, from the first that was pulled until the last has left."""

    node: str
    group: str
    model: str
    slo: str
    start_s: float
    end_s: float
    num_requests: int = 0


@dataclass(frozen=True, slots=True)
class Departure:
    """A request that was evicted from a node."""

    time_s: float
    node: str
    request_id: str
    kv_tokens: int
    is_migration: bool


@dataclass(frozen=True, slots=True)
class PhaseTurn:
    """A node that follows the load changed its phases."""

    time_s: float
    node: str
    phases: Phases


@dataclass(slots=True)
class Recording:
    """Owns all that a report is made of."""

    predictions: list[Prediction] = field(default_factory=list)
    outcomes: list[ClientOutcome] = field(default_factory=list)
    stays: dict[tuple[str, str], Stay] = field(default_factory=dict)
    departures: list[Departure] = field(default_factory=list)
    turns: list[PhaseTurn] = field(default_factory=list)


class Recorder:
    """Listens to a bus. ``predict_every``: of how many newcomers one is predicted; 0: none is."""

    def __init__(
        self, outcome_of: Callable[[str], ClientOutcome], predictions: Callable[[], Predictions], predict_every: int
    ) -> None:
        self.recording = Recording()
        self._outcome_of = outcome_of
        self._predictions = predictions
        self._predict_every = predict_every
        self._places: dict[str, Stay] = {}
        self._phases: dict[str, Phases] = {}

    def __call__(self, now: float, stream: str, message: Message) -> None:
        """A message is sent."""
        del stream
        match message:
            case Submit() if message.attempt == 0 and self._is_predicted(message):
                self._predict(message, now)
            case Pulled():
                self._pulled(message, now)
            case Finished():
                for finished in message.requests:
                    self._left(finished.request_id, now)
            case Evicted():
                for one in message.requests:
                    self._left(one.request_id, now)
                    is_migration = one.kv_at == HANDED_OVER
                    departure = Departure(now, message.node, one.request_id, one.kv_tokens, is_migration)
                    self.recording.departures.append(departure)
            case NodeUp(known=known) if known.follows_load:
                if self._phases.get(known.node, BOTH) != known.phases:
                    self.recording.turns.append(PhaseTurn(now, known.node, known.phases))
                self._phases[known.node] = known.phases

    def over(self, outcome: ClientOutcome) -> None:
        """A request is over."""
        self.recording.outcomes.append(outcome)

    def _is_predicted(self, submit: Submit) -> bool:
        return bool(self._predict_every) and int(submit.request_id) % self._predict_every == 0

    def _predict(self, submit: Submit, now: float) -> None:
        prospect = self._predictions().of_newcomer(submit, now)
        if prospect is not None and prospect.is_learnt:
            wait = prospect.first_token
            self.recording.predictions.append(Prediction(int(submit.request_id), wait.mean_s, wait.quantile(0.9)))

    def _pulled(self, message: Pulled, now: float) -> None:
        key = message.node, message.group
        stay = self.recording.stays.get(key)
        for attempt in message.requests:
            outcome = self._outcome_of(attempt.request_id)
            outcome.started_s = now if outcome.started_s is None else outcome.started_s
            if stay is None:
                request = outcome.request
                stay = self.recording.stays[key] = Stay(*key, request.model, request.slo, now, now)
            stay.num_requests += 1
            self._places[attempt.request_id] = stay

    def _left(self, request_id: str, now: float) -> None:
        stay = self._places.pop(request_id, None)
        if stay is not None:
            stay.end_s = max(stay.end_s, now)

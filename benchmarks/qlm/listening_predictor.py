"""A predictor with corrections of its own that listens to a simulation, and what its predictions are judged by."""

from __future__ import annotations

from dataclasses import dataclass

from ablation_runs import Run

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.wait_intervals import WaitIntervals
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.waits.predictions import Predictions
from services.simulator.recording import Prediction
from services.simulator.simulation import Simulation
from shared.config.config import ClusterConfig
from shared.config.services.corrections import Correction, PredictionOptions
from shared.estimator.wait import NEVER, Wait
from shared.messages.message import Message
from shared.messages.requests.requests import Cancel, Finished, Pulled, QueueStatus, Submit


@dataclass(frozen=True, slots=True)
class Place:
    """A request that waited already, and for how much longer it was expected to."""

    number: int
    time_s: float
    wait_s: float


class Bounds(WaitIntervals):
    """Those of a predictor; they keep what they are to be judged by."""

    def __init__(self, *, is_on: bool) -> None:
        super().__init__({}, {}, is_on=is_on)
        self.places: list[Place] = []

    def watch(self, request_id: str, model: str, slo_kind: str, wait: Wait, now: float) -> None:
        """One of those that wait."""
        if wait != NEVER:
            self.places.append(Place(int(request_id), now, wait.mean_s))
        super().watch(request_id, model, slo_kind, wait, now)


class Predictor:
    """Predicts with some corrections in a simulation that may have others: it looks at its queue manager's state."""

    def __init__(self, simulation: Simulation, run: Run, without: frozenset[Correction]) -> None:
        self._config = with_corrections(run.scenario.config, without)
        self._judge_every = run.judge_every
        self._state = simulation.queue_manager.state
        is_learnt = Correction.LEARNT_BOUNDS in self._config.queue.corrections
        self.bounds = Bounds(is_on=is_learnt)
        self.found: list[Prediction] = []

    def __call__(self, now: float, stream: str, message: Message) -> None:
        """A message is sent."""
        del stream
        match message:
            case Submit() if message.attempt == 0 and int(message.request_id) % self._judge_every == 0:
                prospect = self._predictions().of_newcomer(message, now)
                if prospect is not None and prospect.is_learnt:
                    wait = prospect.first_token
                    self.found.append(Prediction(int(message.request_id), wait.mean_s, wait.quantile(0.9)))
            case QueueStatus() if self._state.anybody_waits:
                self._watch(now)
            case Pulled():
                self.bounds.hear([one.request_id for one in message.requests], [], now)
            case Finished() | Cancel():
                self._hear_ended(message, now)

    def _predictions(self) -> Predictions:
        """Made anew, since the rooms that it asks keep what has not changed by what they have heard."""
        queue = self._config.queue
        groups = RequestGroups(self._state, queue, self._config.tenants)
        predictions = Predictions(self._state, groups, VirtualQueues(self._state, groups, queue), queue)
        predictions.bounds = self.bounds
        return predictions

    def _watch(self, now: float) -> None:
        """As `services.queue_manager.telling.status` does."""
        self.bounds.look(now)
        names = list(self._state.waiting_at)
        if names:
            node = self._state.nodes[names[self._state.status.num_told % len(names)]]
            predictions = self._predictions()
            predictions.watch(node, predictions.elsewhere(now), now)

    def _hear_ended(self, message: Finished | Cancel, now: float) -> None:
        ended = [message.request_id] if isinstance(message, Cancel) else [one.request_id for one in message.requests]
        self.bounds.hear([], ended, now)


def with_corrections(config: ClusterConfig, without: frozenset[Correction]) -> ClusterConfig:
    """The cluster, its predictions without these."""
    predictions = PredictionOptions(without=tuple(one for one in Correction if one in without))
    return config.model_copy(update={"queue": config.queue.model_copy(update={"predictions": predictions})})

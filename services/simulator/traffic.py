"""The requests of a simulation: each is sent in its time, and awaited until it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.simulator.cluster.clients import UNSERVED, ClientOutcome, Clients
from services.simulator.cluster.cluster import SimulatedCluster
from services.simulator.recording import Recorder, Recording
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig


class Traffic:
    """Owns the requests. Their times count from ``start_s``."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        config: ClusterConfig,
        requests: Sequence[WorkloadRequest],
        start_s: float,
        max_predictions: int,
    ) -> None:
        self.awaited = set(range(len(requests)))
        """Numbers of the requests that are not over, but for those that have been sent in vain."""
        self.outcomes: list[ClientOutcome] = []
        """Of the requests that have been sent, by number."""
        self._cluster = cluster
        self._config = config
        self._requests = list(requests)
        self._start_s = start_s
        self._next_s: float | None = None
        """When the next request is sent."""
        self._servable: set[str] = set()
        self._recorder = Recorder(
            lambda request_id: self.outcomes[int(request_id)],
            lambda: cluster.queue_manager.core.predictions,
            -(-len(requests) // max_predictions) if max_predictions else 0,
        )
        self._clients = Clients(cluster.bus, config, self._over, cluster.block_tokens)
        cluster.bus.listen(self._recorder)

    @property
    def recording(self) -> Recording:
        """What has happened."""
        return self._recorder.recording

    @property
    def num_requests(self) -> int:
        """All, sent or not."""
        return len(self._requests)

    def answer_tokens(self, number: int) -> int:
        """After how many tokens the model ends the answer to a request."""
        return self._requests[number].output_tokens

    def begin(self) -> None:
        """Nodes have their models."""
        self._servable = _servable_models(self._config, self._cluster)
        self._submit_later()

    def redraw(self, answer_tokens: Mapping[int, int], later: Sequence[WorkloadRequest]) -> None:
        """Other lengths of answers, by number of the request, and other requests instead of those not sent yet."""
        num_sent = len(self.outcomes)
        self.awaited = {number for number in self.awaited if number < num_sent}
        self._requests[num_sent:] = later
        self.awaited.update(range(num_sent, len(self._requests)))
        for number, output_tokens in answer_tokens.items():
            request = replace(self._requests[number], output_tokens=output_tokens)
            self._requests[number] = self.outcomes[number].request = request
        self._submit_later()

    def end(self) -> None:
        """No client is awaited any more: what was sent in vain is over."""
        for outcome in self.outcomes:
            if not outcome.reason:
                outcome.reason = UNSERVED
                self._over(outcome)

    def _submit_later(self) -> None:
        """The next one, in its time."""
        self._next_s = None
        if len(self.outcomes) < len(self._requests):
            arrival_s = self._start_s + self._requests[len(self.outcomes)].arrival_s
            self._next_s = max(arrival_s, self._cluster.bus.now)
            self._cluster.bus.at(self._next_s, self._submit)

    def _submit(self) -> None:
        if self._cluster.bus.now != self._next_s:
            return  # another one was drawn in its place
        number = len(self.outcomes)
        request = self._requests[number]
        self.outcomes.append(self._clients.submit(number, request))
        if request.model not in self._servable:
            self.awaited.discard(number)
        self._submit_later()

    def _over(self, outcome: ClientOutcome) -> None:
        self._recorder.over(outcome)
        self.awaited.discard(outcome.number)


def _servable_models(config: ClusterConfig, cluster: SimulatedCluster) -> set[str]:
    """Models that a node may have: where none may change its model, those that they have or load by now."""
    held = {node.core.models.loading or node.core.model for node in cluster.nodes.values()}
    models = {model.name for model in config.models}
    return models if config.queue.uses("swap") or "" in held else held

"""What is to be seen of the queue: requests by model and promise, virtual queues by node, plans that are awaited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import BOTH, DECODE, PREFILL, Phases
from shared.service.admin.core_metrics import gauge, gauges
from shared.telemetry.label_cap import LabelCap

_LABELS = ("model", "slo_class", "tenant")


class QueueMetrics:
    """A `shared.service.admin.core_metrics.Measure`. One walk over the groups; no request is looked at.

    A label seen in the queue is shown from then on, with 0 while it is empty: a series that ends looks broken.
    """

    def __init__(self) -> None:
        self._cap = LabelCap()

    def __call__(self, core: QueueManagerCore) -> Iterator[Metric]:
        """Everything, as of the last message."""
        yield from self._requests(core.state)
        yield from _virtual_queues(core.state)
        yield from _planning(core.state)
        yield from _phases(core.state)

    def _requests(self, state: State) -> Iterator[Metric]:
        waiting: dict[tuple[str, ...], float] = dict.fromkeys(self._cap.known, 0)
        running, overdue_s = dict(waiting), dict(waiting)
        for group in state.groups.values():
            labels = self._cap.capped((group.model, group.slo_kind, group.tenant))
            waiting[labels] = waiting.get(labels, 0) + group.num_waiting
            running[labels] = running.get(labels, 0) + group.num_running
            late_s = max(0.0, state.now_s - group.start_by_s) if group.num_waiting else 0.0
            overdue_s[labels] = max(overdue_s.get(labels, 0.0), late_s)
        yield gauge("treadle_queue_accepted_requests", "Requests that are not finished", len(state.requests))
        yield gauges("treadle_queue_waiting_requests", "Requests that wait for a node", _LABELS, waiting.items())
        yield gauges("treadle_queue_running_requests", "Requests that a node works on", _LABELS, running.items())
        yield gauges(
            "treadle_queue_overdue_seconds",
            "How long ago the most urgent waiting request should have started; 0 while none is late",
            _LABELS,
            overdue_s.items(),
        )


def _virtual_queues(state: State) -> Iterator[Metric]:
    queues = {node.node: [state.groups[gid] for gid in node.queue] for node in state.nodes.values()}
    yield gauge("treadle_queue_nodes", "Nodes that have a virtual queue", len(state.nodes))
    yield gauge("treadle_queue_gateways", "Gateways that are alive", len(state.gateways.heard_s))
    yield _by_node(
        "treadle_virtual_queue_groups",
        "Request groups in the virtual queue of a node",
        {node: len(groups) for node, groups in queues.items()},
    )
    yield _by_node(
        "treadle_virtual_queue_waiting_requests",
        "Requests that wait in the virtual queue of a node",
        {node: sum(group.num_waiting for group in groups) for node, groups in queues.items()},
    )
    yield _by_node(
        "treadle_virtual_queue_drain_seconds",
        "Predicted time until all that stands in the virtual queue of a node is done",
        {node.node: node.drain_s for node in state.nodes.values()},
    )
    yield gauge(
        "treadle_queue_unplaced_groups", "Request groups in no virtual queue", len(state.groups) - state.num_placed
    )
    yield gauge("treadle_queue_hand_overs", "Request groups whose KV moves to another node", len(state.hand_overs))


def _planning(state: State) -> Iterator[Metric]:
    plan = state.plan
    pending_s = 0.0 if plan.asked_at_s is None else state.now_s - plan.asked_at_s
    yield gauge("treadle_plan_pending_seconds", "Age of the unanswered question for a plan; 0 without", pending_s)
    yield gauge(
        "treadle_plan_late_groups", "Groups that were found to start too late since the last plan", len(plan.late)
    )


def _phases(state: State) -> Iterator[Metric]:
    """Where nodes follow the load."""
    followers = [node for node in state.nodes.values() if node.known.follows_load]
    options: tuple[Phases, ...] = (PREFILL, DECODE, BOTH)
    yield gauges(
        "treadle_follower_phases",
        "1 for what each node that follows the load serves now, 0 for the rest",
        ["node", "phases"],
        (([node.node, one], float(node.known.phases == one)) for node in followers for one in options),
    )
    changes = CounterMetricFamily(
        "treadle_phase_changes", "Times that a node was told to change to these phases", labels=["phases"]
    )
    for one in options if followers or state.phase_changes else ():
        changes.add_metric([one], state.phase_changes.get(one, 0))
    yield changes


def _by_node(name: str, description: str, values: Mapping[str, float]) -> Metric:
    return gauges(name, description, ["node"], (([node], value) for node, value in values.items()))

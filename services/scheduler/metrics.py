"""What is to be seen of the scheduler: who serves, what is wanted, plans."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from services.scheduler.core import SchedulerCore
from shared.core_metrics import gauge, gauges


def measure(core: SchedulerCore) -> Iterator[Metric]:
    """A `shared.core_metrics.Measure`."""
    state = core.state
    known = [record.state for record in state.nodes.values()]
    yield gauge("treadle_nodes", "Nodes that are alive", len(known))
    yield gauges(
        "treadle_node_info",
        "1 for each node that is alive, with its device and the model that it holds",
        ["node", "device", "model"],
        (([node.node, node.device, node.model], 1) for node in known),
    )
    yield gauges(
        "treadle_broken_models",
        "1 for each model that a living node could not load",
        ["node", "model"],
        (([node.node, model], 1) for node in known for model in node.broken_models),
    )
    yield gauges(
        "treadle_model_demand_tokens",
        "Tokens still to be computed, as of the last question for a plan",
        ["model"],
        (([model], tokens) for model, tokens in state.demand.items()),
    )
    yield CounterMetricFamily("treadle_plans", "Plans sent to the queue manager", value=state.num_plans)
    yield CounterMetricFamily("treadle_planned_swaps", "Model changes in these plans", value=state.num_planned_swaps)

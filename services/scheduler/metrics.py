"""What is to be seen of the scheduler: who serves, what is wanted, plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric

from services.scheduler.core import SchedulerCore
from shared.messages.nodes.nodes import BOTH, NodeState, Phase
from shared.service.admin.core_metrics import gauge, gauges


def measure(core: SchedulerCore) -> Iterator[Metric]:
    """A `shared.service.admin.core_metrics.Measure`."""
    state = core.state
    known = [record.state for record in state.nodes.values()]
    yield gauge("treadle_nodes", "Nodes that are alive", len(known))
    yield gauge("treadle_nodes_lost", "Nodes that fell silent within an hour and have not come back", len(core.lost()))
    yield CounterMetricFamily(
        "treadle_node_losses", "Times that a node fell silent without a goodbye", value=state.losses.num_lost
    )
    yield gauges(
        "treadle_node_info",
        "1 for each node that is alive, with its device and the model that it holds",
        ["node", "device", "model"],
        (([node.node, node.device, node.model], 1) for node in known),
    )
    yield gauges(
        "treadle_phase_nodes",
        "Nodes with a model that serve a phase of requests, where some nodes serve one alone or follow the load",
        ["phase"],
        (([phase], number) for phase, number in _num_by_phase(known).items()),
    )
    yield gauges(
        "treadle_broken_models",
        "1 for each model that a living node could not load",
        ["node", "model"],
        (([node.node, model], 1) for node in known for model in node.broken_models),
    )
    yield gauges(
        "treadle_doubted_facts",
        "1 for each number that a living node tells of itself and that cannot be: it counts as not measured",
        ["node", "fact"],
        (([name, fact], 1) for name, record in state.nodes.items() for fact in record.doubted),
    )
    yield gauges(
        "treadle_model_demand_tokens",
        "Tokens still to be computed, as of the last question for a plan",
        ["model"],
        (([model], tokens) for model, tokens in state.demand.items()),
    )
    yield CounterMetricFamily("treadle_plans", "Plans sent to the queue manager", value=state.num_plans)
    yield CounterMetricFamily("treadle_planned_swaps", "Model changes in these plans", value=state.num_planned_swaps)
    yield from _pools(core)


def _pools(core: SchedulerCore) -> Iterator[Metric]:
    pools = core.state.scaling.pools
    serving = Counter(core.scaling.pool_of(name) for name, node in core.state.nodes.items() if _serves(node.state))
    yield gauges(
        "treadle_pool_nodes",
        "Nodes of a pool: wanted, live as its provider told last, serving a model",
        ["pool", "state"],
        (
            ([name, state], number)
            for name, pool in pools.items()
            for state, number in (("wanted", pool.wanted), ("live", pool.num_nodes), ("serving", serving[name]))
        ),
    )
    yield gauges(
        "treadle_pool_start_seconds",
        "How long a node of a pool takes until it serves, as measured of late",
        ["pool"],
        (([name], pool.start_s) for name, pool in pools.items()),
    )
    changes = CounterMetricFamily(
        "treadle_pool_changes", "Times that a pool has grown or shrunk", labels=["pool", "direction"]
    )
    errors = CounterMetricFamily(
        "treadle_pool_errors", "Times that a provider could not make a pool as it should be", labels=["pool"]
    )
    for name, pool in pools.items():
        changes.add_metric([name, "up"], pool.num_grown)
        changes.add_metric([name, "down"], pool.num_shrunk)
        errors.add_metric([name], pool.num_errors)
    yield from (changes, errors)


def _num_by_phase(nodes: Sequence[NodeState]) -> dict[Phase, int]:
    if all(node.phases == BOTH and not node.follows_load for node in nodes):
        return {}
    phases: tuple[Phase, ...] = ("prefill", "decode")
    return {phase: sum(_serves(node) and node.serves(phase) for node in nodes) for phase in phases}


def _serves(node: NodeState) -> bool:
    return bool(node.model) and not node.is_loading

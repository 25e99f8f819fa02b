"""What is to be seen of the KV manager: memory of every node, and its index, as the nodes report them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from services.kv_manager.core import KvManagerCore, NodeMemory
from shared.service.admin.core_metrics import gauges


def measure(core: KvManagerCore) -> Iterator[Metric]:
    """A `shared.service.admin.core_metrics.Measure`."""
    nodes = list(core.state.nodes.values())

    def by_node(name: str, description: str, num_blocks: Callable[[NodeMemory], int]) -> Metric:
        samples = (([node.node, node.model], num_blocks(node) * node.block_bytes) for node in nodes)
        return gauges(name, description, ["node", "model"], samples)

    yield by_node("treadle_kv_capacity_bytes", "KV memory on the device of a node", lambda node: node.num_blocks)
    yield by_node("treadle_kv_used_bytes", "KV memory that sequences hold", lambda node: node.num_used_blocks)
    yield by_node(
        "treadle_kv_peak_used_bytes",
        "The most that they have held since the node's model was loaded",
        lambda node: node.peak_used_blocks,
    )
    yield gauges(
        "treadle_kv_indexed_blocks",
        "Cached blocks that the index knows, each at each node that has it",
        ["node"],
        (([node.node], core.index.num_blocks_at(node.node)) for node in nodes),
    )
    yield gauges(
        "treadle_offload_lent_pages",
        "Pages of KV memory that one node has of another one",
        ["sender", "receiver"],
        (([one.link.sender, one.link.receiver], len(one.pages)) for one in core.leases.leases.values()),
    )
    yield gauges("treadle_kv_index_bytes", "Memory of the index", [], [([], core.index.num_bytes)])
    yield gauges(
        "treadle_kv_index_gaps",
        "Times that something of what nodes tell of their blocks was missed, and all was asked for again",
        [],
        [([], core.index.num_missed)],
    )

"""Panels of pools: how many nodes are wanted, and what becomes of that."""

from __future__ import annotations

from observability.grafana import Panel, Query, Row
from observability.promql import increase

POOLS = Row(
    "Pools",
    [
        Panel(
            "Nodes by pool",
            "Wanted by the scheduler, live as the provider told last, serving a model.",
            "short",
            [Query("max by (pool, state) (treadle_pool_nodes)", "{{pool}} {{state}}")],
        ),
        Panel(
            "Changes",
            "How often pools grow and shrink. A pool that does both all the time has too short a cooldown.",
            "short",
            [
                Query(increase("treadle_pool_changes_total", "pool", "direction"), "{{pool}} {{direction}}"),
                Query(increase("treadle_pool_errors_total", "pool"), "{{pool}} failed"),
            ],
        ),
        Panel(
            "Start of a node",
            "From the wish until it serves, as measured of late: what growth has to look ahead.",
            "s",
            [Query("max by (pool) (treadle_pool_start_seconds)", "{{pool}}")],
        ),
    ],
)

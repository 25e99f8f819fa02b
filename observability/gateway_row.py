"""The row of gateways on the operators' dashboard: whether their event loops keep up, and what connections do."""

from __future__ import annotations

from observability.grafana import Panel, Query, Row
from observability.promql import quantile, rate

GATEWAYS = Row(
    "Gateways",
    [
        Panel(
            "Lag of the event loop",
            "How late a gateway gets to what is due; every token waits as long. Some milliseconds while it keeps up.",
            "s",
            [
                Query(quantile(share, "treadle_event_loop_lag_seconds"), f"p{share * 100:g}")
                for share in (0.5, 0.9, 0.99)
            ],
        ),
        Panel(
            "Writes held for later tokens",
            "A second, where a gateway's core is full: tokens of an answer go out several at a time.",
            "ops",
            [Query(rate("treadle_held_writes_total"), "held")],
        ),
        Panel(
            "Connections of clients",
            "By what they do, and how many there may be.",
            "short",
            [
                Query("sum by (state) (treadle_connections)", "{{state}}"),
                Query("sum(treadle_max_connections)", "limit"),
            ],
        ),
        Panel(
            "Connections closed by gateways",
            "A second, by why; without those that clients closed.",
            "ops",
            [Query(rate("treadle_closed_connections_total", "reason", chosen='{reason!="closed"}'), "{{reason}}")],
        ),
    ],
)

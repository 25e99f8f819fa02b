"""What operators see of KV that moves: to host memory, to other nodes, and what nodes read in others' caches."""

from __future__ import annotations

from observability.grafana import Panel, Query, Row
from observability.promql import quantile, rate

_HOST = '{tier!="device"}'
_RESTORED = '{tier!="none"}'

OFFLOAD = Row(
    "Offload: KV in host memory",
    [
        Panel(
            "Moved to and from host memory",
            "KV of requests that gave way, for want of memory (swapped) or for more urgent ones (evicted): out when "
            "they left the device, in when they came back. Attention is computed on the device; offloading it to other "
            "devices is not part of this row.",
            "Bps",
            [Query(rate("treadle_kv_moved_bytes_total", "tier", "direction"), "{{tier}} {{direction}}")],
            width=12,
        ),
        Panel(
            "Host memory and SSD in use",
            "Share of what the configuration gives: host_kv_bytes for swapped KV, evicted_kv_bytes for evicted, "
            "tiers.host_bytes and tiers.ssd_bytes for copies of full blocks.",
            "percentunit",
            [
                Query(
                    f"sum by (tier) (treadle_node_kv_used_bytes{_HOST})"
                    f" / sum by (tier) (treadle_node_kv_capacity_bytes{_HOST})",
                    "{{tier}}",
                )
            ],
            width=12,
        ),
        Panel(
            "Went on with their KV",
            "Of the requests that had begun and went on, those whose KV came back from host memory. That of the others "
            "is computed again: it was dropped, or lost with a node.",
            "percentunit",
            [
                Query(
                    f"{rate('treadle_resumed_requests_total', chosen=_RESTORED)}"
                    f" / {rate('treadle_resumed_requests_total')}",
                    "of all",
                )
            ],
            width=12,
        ),
        Panel(
            "KV from node to node",
            "Of requests that another node goes on with, fetched from the node that they left.",
            "Bps",
            [
                Query(rate("treadle_kv_transfer_bytes_total", "direction"), "{{direction}}"),
                Query(rate("treadle_kv_transfer_ahead_bytes_total"), "in, read ahead"),
            ],
            width=12,
        ),
        Panel(
            "Phases that follow the load",
            "Of nodes with phases: auto, how many prefill, decode or do both, and how often nodes were told to change.",
            "short",
            [
                Query("sum by (phases) (treadle_follower_phases)", "{{phases}}"),
                Query(rate("treadle_phase_changes_total", "phases"), "changes to {{phases}} a second"),
            ],
            width=12,
        ),
        Panel(
            "Time to fetch KV, and what was lost",
            "Seconds from the question to the last byte, p50 and p99; and requests a minute whose KV did not come, by "
            "reason: they are computed again.",
            "s",
            [Query(quantile(share, "treadle_kv_transfer_seconds"), f"p{share * 100:g}") for share in (0.5, 0.99)]
            + [Query(f"60 * {rate('treadle_kv_transfer_failures_total', 'reason')}", "{{reason}} a minute")],
            width=12,
        ),
        Panel(
            "Prompts read in other nodes' caches",
            "Prompts a minute whose beginning another node had, by what came of it: all but `fetched` are computed, "
            "and so is what the engine could not use. And what nodes were asked for, by what they gave.",
            "short",
            [
                Query(f"60 * {rate('treadle_node_prefix_fetches_total', 'result')}", "{{result}} a minute"),
                Query(f"60 * {rate('treadle_node_prefix_unused_total')}", "unused a minute"),
                Query(f"60 * {rate('treadle_node_prefix_asks_total', 'result')}", "asked: {{result}} a minute"),
            ],
            width=12,
        ),
        Panel(
            "Time to read them, and what they spare",
            "Seconds of a fetch, p99; tokens a second that were not computed; KV a second that came for it.",
            "short",
            [
                Query(quantile(0.99, "treadle_node_prefix_fetch_seconds"), "p99 seconds"),
                Query(rate("treadle_node_prefix_tokens_total"), "tokens a second"),
                Query(rate("treadle_node_prefix_bytes_total"), "bytes a second"),
            ],
            width=12,
        ),
        Panel(
            "No room in host memory",
            "Requests a minute whose KV was dropped, and has to be computed again.",
            "short",
            [Query(f"60 * {rate('treadle_kv_refused_requests_total', 'tier')}", "{{tier}}")],
            width=12,
        ),
    ],
)

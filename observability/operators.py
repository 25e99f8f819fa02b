"""The dashboard for those who run the cluster: services, virtual queues, plans, estimator, swaps, engines, memory."""

from __future__ import annotations

from observability.grafana import Dashboard, Panel, Query, Row, Variable

_NODE = '{node=~"$node"}'
_ENGINE = '{model_name=~"$model"}'
_MODEL = '{model=~"$model"}'


def _rate(metric: str, by: str, chosen: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{chosen}[$__rate_interval]))"


def _total_rate(metric: str, chosen: str = "") -> str:
    return f"sum(rate({metric}{chosen}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "", chosen: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', labels, chosen)})"


def _now(title: str, description: str, expr: str, legend: str = "") -> Panel:
    return Panel(title, description, "short", [Query(expr, legend)], kind="stat", width=4)


CLUSTER = Row(
    "Cluster",
    [
        _now("Nodes", "Alive, as the scheduler hears them.", "max(treadle_nodes)"),
        _now("Gateways", "Alive, as the queue manager hears them.", "max(treadle_queue_gateways)"),
        _now(
            "Leaders",
            "One instance of each service leads; 0 is an outage.",
            "sum by (service) (treadle_lease_held)",
            "{{service}}",
        ),
        _now("Accepted requests", "Not finished.", "sum(treadle_queue_accepted_requests)"),
        _now("Broken models", "That some node could not load.", "count(treadle_broken_models) or vector(0)"),
        _now(
            "Dead letters",
            "Entries that could not be handled, in the time shown.",
            "sum(increase(treadle_inbox_set_aside_total[$__range]))"
            " + sum(increase(treadle_undecodable_entries_total[$__range]))",
        ),
    ],
)

VIRTUAL_QUEUES = Row(
    "Virtual queues",
    [
        Panel(
            "Waiting requests by node",
            "In its virtual queue, not pulled.",
            "short",
            [Query(f"treadle_virtual_queue_waiting_requests{_NODE}", "{{node}}")],
        ),
        Panel(
            "Groups by node",
            "Request groups in its virtual queue; unplaced ones wait for a node that can have their model.",
            "short",
            [
                Query(f"treadle_virtual_queue_groups{_NODE}", "{{node}}"),
                Query("sum(treadle_queue_unplaced_groups)", "unplaced"),
                Query("sum(treadle_queue_hand_overs)", "handed over"),
            ],
        ),
        Panel(
            "Predicted time until done",
            "Of all that stands in the virtual queue.",
            "s",
            [Query(f"treadle_virtual_queue_drain_seconds{_NODE}", "{{node}}")],
        ),
        Panel(
            "Waiting requests by model and class",
            "All tenants together.",
            "short",
            [Query(f"sum by (model, slo_class) (treadle_queue_waiting_requests{_MODEL})", "{{model}} {{slo_class}}")],
        ),
        Panel(
            "Running requests by model",
            "Pulled by a node.",
            "short",
            [Query(f"sum by (model) (treadle_queue_running_requests{_MODEL})", "{{model}}")],
        ),
        Panel(
            "Nodes by model",
            "How many hold it.",
            "short",
            [Query(f"count by (model) (treadle_node_info{_MODEL})", "{{model}}")],
        ),
    ],
)

PLANS = Row(
    "Plans",
    [
        Panel(
            "Plans a second",
            "The queue manager asks when a promise is in danger, and slowly otherwise.",
            "short",
            [
                Query(_total_rate("treadle_plans_total"), "plans"),
                Query(_total_rate("treadle_solver_failures_total"), "failed"),
            ],
        ),
        Panel(
            "Solver",
            "From a placement problem to its answer, in a process of its own.",
            "s",
            [Query(_quantile(share, "treadle_solver_seconds"), f"p{share * 100:g}") for share in (0.5, 0.99)],
        ),
        Panel(
            "Late groups",
            "Found to start too late since the last plan, and how long a plan has been awaited.",
            "short",
            [
                Query("sum(treadle_plan_late_groups)", "late groups"),
                Query("max(treadle_plan_pending_seconds)", "plan awaited, seconds"),
            ],
        ),
        Panel(
            "Work to be done by model",
            "Tokens that the scheduler was told of when it was last asked.",
            "short",
            [Query(f"sum by (model) (treadle_model_demand_tokens{_MODEL})", "{{model}}")],
            width=12,
        ),
        Panel(
            "Swaps, planned and done",
            "A minute. Plans are revised before they are carried out: more are planned than done.",
            "short",
            [
                Query(f"60 * {_total_rate('treadle_planned_swaps_total')}", "planned"),
                Query(f"60 * {_total_rate('treadle_model_swaps_total')}", "done"),
            ],
            width=12,
        ),
    ],
)

ESTIMATOR = Row(
    "Estimator: predicted against actual wait",
    [
        Panel(
            "Error of predictions",
            "Actual minus predicted time to the first token: above 0 it came later than predicted.",
            "s",
            [
                Query(_quantile(share, "treadle_queue_wait_error_seconds", chosen=_MODEL), f"p{share * 100:g}")
                for share in (0.1, 0.5, 0.9)
            ],
        ),
        Panel(
            "Error, all predictions",
            "How many erred how far.",
            "s",
            [
                Query(
                    f"sum by (le) (increase(treadle_queue_wait_error_seconds_bucket{_MODEL}[$__rate_interval]))",
                    "{{le}}",
                )
            ],
            kind="heatmap",
        ),
        Panel(
            "Waits above their p90",
            "Should be a tenth: more means that predictions are too sure of themselves.",
            "percentunit",
            [
                Query(
                    f"{_rate('treadle_queue_wait_above_p90_total', 'slo_class', _MODEL)}"
                    f" / {_rate('treadle_queue_wait_error_seconds_count', 'slo_class', _MODEL)}",
                    "{{slo_class}}",
                )
            ],
        ),
    ],
)

OPERATIONS = Row(
    "Serving operations",
    [
        Panel(
            "Model swaps a minute",
            "By where the weights were.",
            "short",
            [
                Query(
                    f"60 * {_rate('treadle_model_swap_seconds_count', 'model, source', _MODEL)}",
                    "{{model}} from {{source}}",
                )
            ],
        ),
        Panel(
            "Time of a swap, p90",
            "By where the weights were.",
            "s",
            [Query(_quantile(0.9, "treadle_model_swap_seconds", "source", _MODEL), "from {{source}}")],
        ),
        Panel(
            "Time spent with swaps",
            "Share of a node's time.",
            "percentunit",
            [Query(_rate("treadle_model_swap_seconds_sum", "instance", _MODEL), "{{instance}}")],
        ),
        Panel(
            "Evictions and migrations a minute",
            "Requests that gave way to more urgent ones, that went to another node, and that memory ran out for.",
            "short",
            [
                Query(f"60 * {_total_rate('treadle_evictions_total')}", "evicted"),
                Query(f"60 * {_total_rate('treadle_migrations_total')}", "migrated"),
                Query(f"60 * {_total_rate('vllm:num_preemptions_total')}", "preempted"),
            ],
            width=12,
        ),
        Panel(
            "Work saved by eviction with KV",
            "Tokens a second: kept when their request left, and restored without computing them again.",
            "short",
            [
                Query(_total_rate("treadle_evicted_kv_tokens_total"), "kept"),
                Query(_total_rate("treadle_restored_kv_tokens_total"), "restored"),
            ],
            width=12,
        ),
    ],
)

ENGINES = Row(
    "Engines",
    [
        Panel(
            "Running and waiting",
            "Requests in the batch, and those that wait inside the engine.",
            "short",
            [
                Query(f"vllm:num_requests_running{_ENGINE}", "{{instance}} {{model_name}} running"),
                Query(f"vllm:num_requests_waiting{_ENGINE}", "{{instance}} {{model_name}} waiting"),
            ],
        ),
        Panel(
            "Output tokens a second",
            "By engine.",
            "short",
            [
                Query(
                    _rate("vllm:generation_tokens_total", "instance, model_name", _ENGINE),
                    "{{instance}} {{model_name}}",
                )
            ],
        ),
        Panel(
            "Steps a second",
            "By engine.",
            "short",
            [Query(_rate("treadle_node_steps_total", "instance"), "{{instance}}")],
        ),
        Panel(
            "Inter-token latency",
            "From one token of a choice to the next, at the node.",
            "s",
            [
                Query(
                    _quantile(share, "vllm:inter_token_latency_seconds", "model_name", _ENGINE),
                    f"{{{{model_name}}}} p{share * 100:g}",
                )
                for share in (0.5, 0.99)
            ],
        ),
        Panel(
            "Time to first token at the node",
            "From the pull, so without the wait in the queue.",
            "s",
            [
                Query(
                    _quantile(share, "vllm:time_to_first_token_seconds", "model_name", _ENGINE),
                    f"{{{{model_name}}}} p{share * 100:g}",
                )
                for share in (0.5, 0.99)
            ],
        ),
        Panel(
            "Prefix cache",
            "Share of prompt tokens that were cached.",
            "percentunit",
            [
                Query(
                    f"{_rate('vllm:prefix_cache_hits_total', 'instance')}"
                    f" / {_rate('vllm:prefix_cache_queries_total', 'instance')}",
                    "{{instance}}",
                )
            ],
        ),
    ],
)

MEMORY = Row(
    "KV memory by tier",
    [
        Panel(
            "On devices",
            "Share of blocks in use.",
            "percentunit",
            [Query(f"vllm:kv_cache_usage_perc{_ENGINE}", "{{instance}} {{model_name}}")],
        ),
        Panel(
            "On devices, by node",
            "In use, as the KV manager knows it, and the most since the model was loaded.",
            "bytes",
            [
                Query(f"treadle_kv_used_bytes{_NODE}", "{{node}} used"),
                Query(f"treadle_kv_peak_used_bytes{_NODE}", "{{node}} peak"),
                Query(f"treadle_kv_capacity_bytes{_NODE}", "{{node}} capacity"),
            ],
        ),
        Panel(
            "All tiers",
            "device, and in host memory: swapped (of preempted requests) and evicted (of those that gave way).",
            "bytes",
            [
                Query("sum by (tier) (treadle_node_kv_used_bytes)", "{{tier}} used"),
                Query("sum by (tier) (treadle_node_kv_capacity_bytes)", "{{tier}} capacity"),
            ],
        ),
    ],
)

SERVICES = Row(
    "Services",
    [
        Panel(
            "Inbox entries a second",
            "Messages that each service has handled.",
            "short",
            [Query(_rate("treadle_inbox_entries_total", "service"), "{{service}}")],
        ),
        Panel(
            "Inbox lag",
            "Age of the newest entry of a batch when its effects were committed.",
            "s",
            [Query("max by (service) (treadle_inbox_lag_seconds)", "{{service}}")],
        ),
        Panel(
            "Commit, p99",
            "One atomic script at Redis.",
            "s",
            [Query(_quantile(0.99, "treadle_commit_seconds", "service"), "{{service}}")],
        ),
        Panel(
            "Rebuilds and epochs",
            "In 15 minutes: cores built from their logs, and lives of nodes. Few, outside of upgrades.",
            "short",
            [
                Query("sum by (service) (increase(treadle_core_rebuilds_total[15m]))", "{{service}}"),
                Query("sum by (instance) (increase(treadle_node_epochs_total[15m]))", "{{instance}}"),
            ],
            width=24,
        ),
    ],
)

OPERATORS = Dashboard(
    uid="treadle-operators",
    title="Treadle: operators",
    description="Services, virtual queues, plans, the estimator, swaps, engines and KV memory.",
    variables=[
        Variable("model", "label_values(treadle_requests_total, model)"),
        Variable("node", "label_values(treadle_node_info, node)"),
    ],
    rows=[CLUSTER, VIRTUAL_QUEUES, PLANS, ESTIMATOR, OPERATIONS, ENGINES, MEMORY, SERVICES],
)

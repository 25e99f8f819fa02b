"""The dashboard for those who run the cluster: services, virtual queues, plans, the estimator (nodes: `node_rows`)."""

from __future__ import annotations

from functools import partial

from observability.batch_row import BATCHES
from observability.gateway_row import GATEWAYS
from observability.grafana import Dashboard, Panel, Query, Row, Variable, stat
from observability.moves_row import OFFLOAD
from observability.node_rows import ENGINES, KEPT, MEMORY, OPERATIONS, WEAVING
from observability.promql import increase, quantile, rate

_NODE = '{node=~"$node"}'
_MODEL = '{model=~"$model"}'


_now = partial(stat, width=3)


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
            "Doubted facts",
            "Numbers that nodes tell of themselves and that cannot be; /status of the scheduler names them.",
            "count(treadle_doubted_facts) or vector(0)",
        ),
        _now(
            "Dead letters",
            "Entries that could not be handled, in the time shown.",
            " + ".join(
                increase(metric, window="$__range")
                for metric in ("treadle_inbox_set_aside_total", "treadle_undecodable_entries_total")
            ),
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
                Query(rate("treadle_plans_total"), "plans"),
                Query(rate("treadle_solver_failures_total"), "failed"),
            ],
        ),
        Panel(
            "Solver",
            "From a placement problem to its answer, in a process of its own.",
            "s",
            [Query(quantile(share, "treadle_solver_seconds"), f"p{share * 100:g}") for share in (0.5, 0.99)],
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
                Query(f"60 * {rate('treadle_planned_swaps_total')}", "planned"),
                Query(f"60 * {rate('treadle_model_swaps_total')}", "done"),
            ],
            width=12,
        ),
    ],
)

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
            "Changes an hour",
            "Times that a pool was to grow or to shrink.",
            "short",
            [Query(increase("treadle_pool_changes_total", "pool", "direction", window="1h"), "{{pool}} {{direction}}")],
        ),
        Panel(
            "Failed tries",
            "In 15 minutes: a pool was not as it should be afterwards.",
            "short",
            [Query(increase("treadle_pool_errors_total", "pool", window="15m"), "{{pool}}")],
        ),
        Panel(
            "Start of a node",
            "From the wish until it serves, as measured of late: how far ahead a pool has to look.",
            "s",
            [Query("max by (pool) (treadle_pool_start_seconds)", "{{pool}}")],
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
                Query(quantile(share, "treadle_queue_wait_error_seconds", chosen=_MODEL), f"p{share * 100:g}")
                for share in (0.1, 0.5, 0.9)
            ],
        ),
        Panel(
            "Error, all predictions",
            "How many erred how far.",
            "s",
            [
                Query(
                    increase("treadle_queue_wait_error_seconds_bucket", "le", chosen=_MODEL),
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
                    f"{rate('treadle_queue_wait_above_p90_total', 'slo_class', chosen=_MODEL)}"
                    f" / {rate('treadle_queue_wait_error_seconds_count', 'slo_class', chosen=_MODEL)}",
                    "{{slo_class}}",
                )
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
            [Query(rate("treadle_inbox_entries_total", "service"), "{{service}}")],
        ),
        Panel(
            "Inbox lag",
            "Age of the newest entry of a batch when its effects were committed; of the oldest that is not handled.",
            "s",
            [
                Query("max by (service) (treadle_inbox_lag_seconds)", "{{service}}"),
                Query("max by (service) (treadle_inbox_oldest_unhandled_seconds)", "{{service}}, not handled"),
            ],
        ),
        Panel(
            "Commit, p99",
            "One atomic script at Redis.",
            "s",
            [Query(quantile(0.99, "treadle_commit_seconds", "service"), "{{service}}")],
        ),
        Panel(
            "Writes not replicated in time",
            "Where `durability` waits for replicas or disks. A fail-over now would lose them.",
            "ops",
            [Query(rate("treadle_unreplicated_writes_total", "process"), "{{process}}")],
        ),
        Panel(
            "Workers of gateways",
            "That serve, by gateway, and those that ended in 15 minutes though nobody asked them to; none where a "
            "gateway is one process.",
            "short",
            [
                Query("treadle_gateway_workers_ready", "{{instance}} ready"),
                Query(increase("treadle_gateway_worker_restarts_total", "instance", window="15m"), "{{instance}} died"),
            ],
        ),
        Panel(
            "Rebuilds and epochs",
            "In 15 minutes: cores built from logs, lives of nodes, nodes that fell silent. Few, outside of upgrades.",
            "short",
            [
                Query(increase("treadle_core_rebuilds_total", "service", window="15m"), "{{service}}"),
                Query(increase("treadle_node_epochs_total", "instance", window="15m"), "{{instance}}"),
                Query(increase("treadle_node_losses_total", window="15m"), "nodes lost"),
            ],
            width=12,
        ),
        Panel(
            "Memory of Redis",
            "What counts towards its limit, the limit, and what gateways hold: bodies, and payloads, which lie in it. "
            "New requests are refused from 80 % of the limit on.",
            "bytes",
            [
                Query("max(treadle_redis_used_bytes)", "used"),
                Query("max(treadle_redis_max_bytes)", "limit"),
                Query("sum(treadle_inflight_bytes)", "held by gateways"),
            ],
            width=12,
        ),
        Panel(
            "Responses not kept",
            "Answers of the Responses API that were to be kept and could not be, in 15 minutes: too long, or Redis was "
            "full or away. Their clients go on by sending the conversation.",
            "short",
            [Query(increase("treadle_unkept_responses_total", "instance", window="15m"), "{{instance}}")],
            width=12,
        ),
        Panel(
            "Responses in the background",
            "Those that have not ended, and those that gateways went on with in 15 minutes, since the process that had "
            "followed them had ended. The cluster takes 1,024 at a time, of a tenant 256.",
            "short",
            [
                Query("sum(treadle_background_responses)", "not ended"),
                Query(increase("treadle_background_taken_over_total", window="15m"), "taken over"),
            ],
            width=12,
        ),
        Panel(
            "Keys and models",
            "Gateways that cannot use the keys, or the models, of their files as these are now, or count rates alone "
            "since Redis does not answer; files read again in 15 minutes, and requests that ended because their key "
            "was revoked.",
            "short",
            [
                Query("sum(treadle_keys_stale)", "gateways with older keys"),
                Query("sum(treadle_models_stale)", "gateways with older models"),
                Query("sum(treadle_key_rates_alone)", "that count rates alone"),
                Query(increase("treadle_key_reloads_total", "outcome", window="15m"), "keys read again: {{outcome}}"),
                Query(increase("treadle_model_reloads_total", "outcome", window="15m"), "models: {{outcome}}"),
                Query(increase("treadle_revoked_requests_total", "instance", window="15m"), "revoked at {{instance}}"),
            ],
            width=12,
        ),
    ],
)

OPERATORS = Dashboard(
    uid="treadle-operators",
    title="Treadle: operators",
    description="Services, virtual queues, plans, the estimator, swaps, engines, KV memory and its offload.",
    variables=[
        Variable("model", "label_values(treadle_requests_total, model)"),
        Variable("node", "label_values(treadle_node_info, node)"),
    ],
    rows=[
        CLUSTER,
        VIRTUAL_QUEUES,
        PLANS,
        POOLS,
        ESTIMATOR,
        OPERATIONS,
        ENGINES,
        MEMORY,
        KEPT,
        OFFLOAD,
        WEAVING,
        GATEWAYS,
        BATCHES,
        SERVICES,
    ],
)

"""What operators see of nodes: serving operations (QLM, SoCC'24 §5), engines, KV memory by tier."""

from __future__ import annotations

from observability.grafana import Panel, Query, Row
from observability.promql import quantile, rate

_NODE = '{node=~"$node"}'
_ENGINE = '{model_name=~"$model"}'
_MODEL = '{model=~"$model"}'

OPERATIONS = Row(
    "Serving operations",
    [
        Panel(
            "Model swaps a minute",
            "By where the weights were.",
            "short",
            [
                Query(
                    f"60 * {rate('treadle_model_swap_seconds_count', 'model', 'source', chosen=_MODEL)}",
                    "{{model}} from {{source}}",
                )
            ],
        ),
        Panel(
            "Time of a swap, p90",
            "By where the weights were.",
            "s",
            [Query(quantile(0.9, "treadle_model_swap_seconds", "source", chosen=_MODEL), "from {{source}}")],
        ),
        Panel(
            "Time spent with swaps",
            "Share of a node's time.",
            "percentunit",
            [Query(rate("treadle_model_swap_seconds_sum", "instance", chosen=_MODEL), "{{instance}}")],
        ),
        Panel(
            "Evictions and migrations a minute",
            "Requests that gave way to more urgent ones, that went to another node, and that memory ran out for.",
            "short",
            [
                Query(f"60 * {rate('treadle_evictions_total')}", "evicted"),
                Query(f"60 * {rate('treadle_migrations_total')}", "migrated"),
                Query(f"60 * {rate('vllm:num_preemptions_total')}", "preempted"),
            ],
            width=12,
        ),
        Panel(
            "Work saved by eviction with KV",
            "Tokens a second: kept when their request left, and restored without computing them again.",
            "short",
            [
                Query(rate("treadle_evicted_kv_tokens_total"), "kept"),
                Query(rate("treadle_restored_kv_tokens_total"), "restored"),
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
                    rate("vllm:generation_tokens_total", "instance", "model_name", chosen=_ENGINE),
                    "{{instance}} {{model_name}}",
                )
            ],
        ),
        Panel(
            "Prompt tokens and texts a second",
            "Of answers that began, and of texts that were embedded or scored: these bring no output tokens.",
            "short",
            [
                Query(
                    rate("vllm:prompt_tokens_total", "instance", "model_name", chosen=_ENGINE),
                    "{{instance}} {{model_name}}",
                ),
                Query(
                    rate("treadle_node_pooled_texts_total", "instance", "model", chosen=_MODEL),
                    "{{instance}} {{model}}, texts",
                ),
            ],
        ),
        Panel(
            "Steps a second",
            "By engine.",
            "short",
            [Query(rate("treadle_node_steps_total", "instance"), "{{instance}}")],
        ),
        Panel(
            "Inter-token latency",
            "From one token of a choice to the next, at the node.",
            "s",
            [
                Query(
                    quantile(share, "vllm:inter_token_latency_seconds", "model_name", chosen=_ENGINE),
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
                    quantile(share, "vllm:time_to_first_token_seconds", "model_name", chosen=_ENGINE),
                    f"{{{{model_name}}}} p{share * 100:g}",
                )
                for share in (0.5, 0.99)
            ],
        ),
        Panel(
            "Guessed tokens",
            "Share of guessed tokens that were kept (models[].speculation, engine.structured_guesses).",
            "percentunit",
            [
                Query(
                    f"{rate('vllm:spec_decode_num_accepted_tokens_total', 'instance')}"
                    f" / {rate('vllm:spec_decode_num_draft_tokens_total', 'instance')}",
                    "{{instance}}",
                ),
                Query(
                    f"{rate('treadle_node_structured_accepted_tokens_total', 'instance')}"
                    f" / {rate('treadle_node_structured_draft_tokens_total', 'instance')}",
                    "{{instance}} structured output",
                ),
            ],
        ),
        Panel(
            "Structured output that was guessed",
            "Tokens that came without a step of their own, since their language left little else "
            "(engine.structured_guesses).",
            "tokens/s",
            [Query(rate("treadle_node_structured_accepted_tokens_total", "instance"), "{{instance}}")],
        ),
        Panel(
            "Prefix cache",
            "Share of prompt tokens that were cached.",
            "percentunit",
            [
                Query(
                    f"{rate('vllm:prefix_cache_hits_total', 'instance')}"
                    f" / {rate('vllm:prefix_cache_queries_total', 'instance')}",
                    "{{instance}}",
                )
            ],
        ),
    ],
)

WEAVING = Row(
    "Attention on other nodes",
    [
        Panel(
            "Pages lent",
            "KV memory that one node has of another one of its machine.",
            "short",
            [Query("sum by (sender, receiver) (treadle_offload_lent_pages)", "{{receiver}} to {{sender}}")],
        ),
        Panel(
            "Attention done for others",
            "A second, a layer of a step each.",
            "short",
            [Query(rate("treadle_offload_served_tasks_total", "instance"), "{{instance}}")],
        ),
        Panel(
            "Lost by their receiver",
            "Requests a minute that are computed again: the node that they lay on was gone, stopped, or late.",
            "short",
            [Query(f"60 * {rate('treadle_offload_lost_requests_total', 'instance')}", "{{instance}}")],
        ),
    ],
)

KEPT = Row(
    "KV that returns: tiers below the device",
    [
        Panel(
            "Found below the device",
            "Prompt tokens a second that were found in host memory or on the SSD, and not computed.",
            "short",
            [Query(rate("treadle_kv_tier_hits_total", "tier"), "{{tier}}")],
        ),
        Panel(
            "Not kept",
            "Full blocks a second without a copy in a tier: no room, or too many waiting to be written.",
            "short",
            [Query(rate("treadle_kv_tier_lost_blocks_total", "tier"), "{{tier}}")],
        ),
        Panel(
            "Steps in pipelines",
            "Engine steps a second that went through lanes, that were too small, or whose pipeline is unknown.",
            "short",
            [Query(rate("treadle_node_pipeline_steps_total", "way"), "{{way}}")],
        ),
        Panel(
            "SSD: blocks and faults",
            "Blocks a second written (out) and read (in); blocks that failed or were damaged; requests that did not "
            "wait for a slow disk.",
            "short",
            [
                Query(rate("treadle_kv_ssd_blocks_total", "direction"), "{{direction}}"),
                Query(rate("treadle_kv_ssd_faults_total", "reason"), "{{reason}}"),
            ],
        ),
        Panel(
            "Index: blocks",
            "Cached blocks that the KV manager knows of each node; how often it missed something and asked again.",
            "short",
            [
                Query("treadle_kv_indexed_blocks", "{{node}}"),
                Query("treadle_kv_index_gaps", "missed"),
            ],
        ),
        Panel(
            "Index: memory",
            "Of the KV manager, for all blocks of all nodes.",
            "bytes",
            [Query("treadle_kv_index_bytes", "index")],
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
            "device, and in host memory: swapped (of preempted requests) and evicted (of those that gave way); "
            "host and ssd: copies of full blocks.",
            "bytes",
            [
                Query("sum by (tier) (treadle_node_kv_used_bytes)", "{{tier}} used"),
                Query("sum by (tier) (treadle_node_kv_capacity_bytes)", "{{tier}} capacity"),
            ],
        ),
    ],
)

"""What a run came to, as one JSON object; the same run gives the same bytes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from gpu_node.engine.measures.counts import Counts
from services.simulator.cluster.clients import UNSERVED, ClientOutcome
from services.simulator.reports.accuracy import estimator_accuracy
from services.simulator.simulation import SimulationRun
from shared.config.config import ClusterConfig
from shared.messages.nodes.nodes import AUTO
from shared.messages.requests.slo import Slo

DECIMALS = 4


def keeps(outcome: ClientOutcome, slo: Slo) -> bool:
    """Whether the promise was kept: judged as in `gateway.inflight.timeline`. Without an answer none is kept."""
    if not outcome.is_answered or outcome.first_token_s is None or outcome.finished_s is None:
        return False
    ttft_s, e2e_s = outcome.first_token_s - outcome.sent_s, outcome.finished_s - outcome.sent_s
    tpot_s = (outcome.finished_s - outcome.first_token_s) / (outcome.num_tokens - 1) if outcome.num_tokens > 1 else None
    pairs = ((ttft_s, slo.ttft_s), (tpot_s, slo.tpot_s), (e2e_s, slo.deadline_s))
    return all(actual is None or promised is None or actual <= promised for actual, promised in pairs)


def attainment(outcomes: Sequence[ClientOutcome], config: ClusterConfig) -> float:
    """Share of the requests whose promise was kept."""
    return sum(keeps(outcome, config.slo(outcome.request.slo)) for outcome in outcomes) / len(outcomes)


def report(run: SimulationRun) -> dict[str, Any]:
    """Times in seconds, from the arrival on: ``wait`` until a node takes a request, ``ttft`` until its first token."""
    outcomes = sorted(run.recording.outcomes, key=lambda outcome: outcome.number)
    config, makespan_s = run.scenario.config, run.end_s - run.start_s
    waits_s = [one.started_s - one.sent_s for one in outcomes if one.started_s is not None]
    ttfts_s = [one.first_token_s - one.sent_s for one in outcomes if one.first_token_s is not None]
    num_answered = sum(outcome.is_answered for outcome in outcomes)
    departures = run.recording.departures
    found = {
        "num_requests": len(outcomes),
        "num_answered": num_answered,
        "num_rejected": sum(outcome.reason == "rejected" for outcome in outcomes),
        "num_unserved": sum(outcome.reason == UNSERVED for outcome in outcomes),
        "slo_attainment": attainment(outcomes, config),
        "slo_attainment_by_class": _by(outcomes, config, lambda outcome: outcome.request.slo),
        "slo_attainment_by_model": _by(outcomes, config, lambda outcome: outcome.request.model),
        "started_in_time": _started_in_time(outcomes, config),
        "throughput_rps": num_answered / makespan_s,
        "output_tok_s": sum(outcome.num_tokens for outcome in outcomes) / makespan_s,
        "makespan_s": makespan_s,
        **quantiles("wait", waits_s),
        **quantiles("ttft", ttfts_s),
        "ttft_by_class": _ttft_by_class(outcomes),
        **quantiles("e2e", [one.finished_s - one.sent_s for one in outcomes if one.is_answered and one.finished_s]),
        "model_swaps": sum(len(node.loadings) for node in run.nodes),
        "evictions": sum(not departure.is_migration for departure in departures),
        "evictions_without_kv": sum(not departure.kv_tokens for departure in departures),
        "migrations": sum(departure.is_migration for departure in departures),
        **({"phase_changes": len(run.recording.turns)} if _follow_load(config) else {}),
        "preemptions": sum(node.counts.num_preemptions for node in run.nodes),
        "prompt_tokens_found": _found_share(run),
        **_fetched(run),
        "num_plans": run.num_plans,
        "node_hours": run.node_s / 3600,
        "idle_while_waiting_share": sum(run.idle_while_waiting.values()),
        "idle_while_waiting_by_cause": dict(run.idle_while_waiting),
        "device_utilisation": statistics.mean(node.busy_s for node in run.nodes) / makespan_s,
        "device_utilisation_by_kind": _utilisation_by_kind(run, makespan_s),
        **estimator_accuracy(run.recording.predictions, outcomes),
    }
    return {name: rounded(value) for name, value in found.items()}


def _follow_load(config: ClusterConfig) -> bool:
    return any(node.phases == AUTO for node in config.nodes)


def quantiles(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Median and 99th percentile, straight between neighbours; None without values."""
    if len(values) < 2:
        only = values[0] if values else None
        return {f"{name}_p50_s": only, f"{name}_p99_s": only}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {f"{name}_p50_s": cuts[49], f"{name}_p99_s": cuts[98]}


def rounded(value: Any) -> Any:
    """Numbers to `DECIMALS`, also inside of mappings; what is infinite has no place in JSON and becomes None."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, float):
        return round(value, DECIMALS) if math.isfinite(value) else None
    return value


def _found_share(run: SimulationRun) -> dict[str, float]:
    """Of the tokens of prompts, those that a node had, by the tier where it had them; all 0 without contents."""
    counts = sum((node.counts for node in run.nodes), Counts())
    kept, queried = counts.kept, max(1, counts.first_queried_tokens)
    below = (kept.host_tokens, kept.store_tokens)
    parts = {"device": counts.first_cached_tokens - sum(below), "host": below[0], "ssd": below[1]}
    return {"all": counts.first_cached_tokens / queried} | {tier: part / queried for tier, part in parts.items()}


def _fetched(run: SimulationRun) -> dict[str, int]:
    """What nodes have read in each other's caches; nothing is said where no prompts begin alike."""
    if not run.scenario.has_contents:
        return {}
    counts = [node.prefixes for node in run.nodes]
    return {
        "prefixes_fetched": sum(one.num_fetched for one in counts),
        "prefixes_not_fetched": sum(one.num_failed for one in counts),
        "prefix_tokens_fetched": sum(one.num_tokens for one in counts),
        "prefix_bytes_fetched": sum(one.num_bytes for one in counts),
        "prompt_tokens_computed": sum(
            node.counts.first_queried_tokens - node.counts.first_cached_tokens for node in run.nodes
        ),
    }


def _by(
    outcomes: Sequence[ClientOutcome], config: ClusterConfig, key: Callable[[ClientOutcome], str]
) -> dict[str, float]:
    parts: dict[str, list[ClientOutcome]] = {}
    for outcome in outcomes:
        parts.setdefault(key(outcome), []).append(outcome)
    return {name: attainment(parts[name], config) for name in sorted(parts)}


def _ttft_by_class(outcomes: Sequence[ClientOutcome]) -> dict[str, dict[str, float | None]]:
    """Times to the first token of each class; one without any has no percentiles."""
    found: dict[str, list[float]] = {outcome.request.slo: [] for outcome in outcomes}
    for one in outcomes:
        if one.first_token_s is not None:
            found[one.request.slo].append(one.first_token_s - one.sent_s)
    return {name: quantiles("ttft", found[name]) for name in sorted(found)}


def _started_in_time(outcomes: Sequence[ClientOutcome], config: ClusterConfig) -> float:
    """Share of the requests whose first token came before their whole answer was due: what an order can decide."""
    in_time = (
        one.first_token_s is not None and one.first_token_s <= config.slo(one.request.slo).start_by_s(one.sent_s)
        for one in outcomes
    )
    return sum(in_time) / len(outcomes)


def _utilisation_by_kind(run: SimulationRun, makespan_s: float) -> dict[str, float]:
    busy_s: dict[str, list[float]] = {}
    for node in run.nodes:
        busy_s.setdefault(node.kind, []).append(node.busy_s)
    return {kind: statistics.mean(busy_s[kind]) / makespan_s for kind in sorted(busy_s)}

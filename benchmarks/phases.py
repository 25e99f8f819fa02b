"""Prefill and decoding on nodes of their own, beside as many nodes that do both: times between tokens, first tokens.

    python benchmarks/phases.py --json

In the simulator: four A100s with Mistral-7B by their published numbers, with the live cores. Short chats draw tokens
all the time, while prompts of some thousand tokens come in between; both want their first token within `TTFT_S` and
further ones every `TPOT_S`. The same requests go to four nodes of both phases, and to each way to part them, over
networks of 10 and 100 Gbit/s: a prompt of 6,000 tokens leaves 786 MB of keys and values. They are sent when all of it
is there (``whole``), and while the prompt is computed (``ahead``); for lone prompts, the pause between first and second
token tells what that is worth. Then four models of this size share the four nodes: for `HOT_S` two of them are asked
for nearly alone, then two others, so that nodes of both phases load other models. The same options give the same
figures on every machine. Four minutes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import click

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.devices.catalogue import cluster_config, devices_of, phases_of
from services.simulator.reports.report import attainment, quantiles, rounded
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig
from shared.config.services.clients import SloClass
from shared.config.services.queue import OperationOptions, QueueOptions

MODEL, MAX_MODEL_LEN = "mistral-7b", 8192
NUM_NODES, NUM_SEQS = 4, 128
NUM_REQUESTS = 400
LONG_SHARE = 0.25
LONG, CHAT = (6000, 100), (300, 300)  # tokens of prompt and answer; each varies by a third
SPREAD = 1 / 3
CLASS = "chat"
TTFT_S, TPOT_S = 4.0, 0.025
RATES_PER_S = (4.0, 8.0)
NETWORKS_PER_S = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}
SENT = {"whole": False, "ahead": True}
LONE_PROMPTS = (1000, 2000, 4000, 6000)  # tokens
MODELS = [f"{MODEL}-{number}" for number in range(4)]
HOT = ((0, 1), (2, 3), (0, 2))  # one pair after the other
HOT_S, COLD_SHARE = 30.0, 0.02
SEVERAL_RATE_PER_S = 6.0


def drawn(rate_per_s: float, num_requests: int, seed: int, models: Sequence[str] = (MODEL,)) -> list[WorkloadRequest]:
    """Requests of both kinds, at random times; of several models, those that are hot then, seldom another."""
    draw, at_s, found = Random(seed), 0.0, list[WorkloadRequest]()
    for _ in range(num_requests):
        at_s += draw.expovariate(rate_per_s)
        model = models[0] if len(models) == 1 else _asked(draw, at_s, models)
        lengths = LONG if draw.random() < LONG_SHARE else CHAT
        prompt, output = (round(tokens * draw.uniform(1 - SPREAD, 1 + SPREAD)) for tokens in lengths)
        found.append(WorkloadRequest(at_s, model, CLASS, prompt, output))
    return found


def _asked(draw: Random, at_s: float, models: Sequence[str]) -> str:
    hot = HOT[int(at_s / HOT_S) % len(HOT)]
    is_cold = draw.random() < COLD_SHARE
    return draw.choice([model for number, model in enumerate(models) if (number in hot) != is_cold])


def simulated(
    requests: Sequence[WorkloadRequest],
    num_prefill: int,
    network_per_s: float,
    models: Sequence[str] = (MODEL,),
    *,
    read_ahead: bool = True,
) -> tuple[SimulationRun, ClusterConfig]:
    """A cluster in which so many nodes prefill, and the others decode; 0: all do both.

    All ``models`` are of the size of `MODEL`.
    """
    lengths = dict.fromkeys(models, MAX_MODEL_LEN)
    devices = {
        name: replace(one, network_bytes_per_s=network_per_s, models=dict.fromkeys(models, one.models[MODEL]))
        for name, one in devices_of({"a100": NUM_NODES}, [MODEL], max_model_lens={MODEL: MAX_MODEL_LEN}).items()
    }
    parts = phases_of({"a100": num_prefill}, {"a100": NUM_NODES - num_prefill}) if num_prefill else {}
    queue = QueueOptions(operations=OperationOptions(read_ahead=read_ahead))
    config = cluster_config(list(devices), list(models), queue, NUM_SEQS, lengths, phases=parts)
    config = config.model_copy(update={"slo_classes": {CLASS: SloClass(ttft_s=TTFT_S, tpot_s=TPOT_S)}})
    return simulate(Scenario(config, devices, requests)), config


def figures(run: SimulationRun, config: ClusterConfig) -> dict[str, Any]:
    """Of all requests."""
    outcomes = run.recording.outcomes
    tokens = sum(one.num_tokens for one in outcomes)
    return {
        "kept": attainment(outcomes, config),
        **quantiles("ttft", [one.first_token_s - one.sent_s for one in outcomes if one.first_token_s is not None]),
        **quantiles("tpot", [tpot_s(one) for one in outcomes if one.num_tokens > 1]),
        "output_tok_s": tokens / (run.end_s - run.start_s),
        "handed_over": sum(departure.is_migration for departure in run.recording.departures),
        "computed_again": sum(not departure.kv_tokens for departure in run.recording.departures),
        "busy": statistics.mean(node.busy_s for node in run.nodes) / (run.end_s - run.start_s),
        "loads": [len(node.loadings) for node in run.nodes],
    }


def tpot_s(outcome: ClientOutcome) -> float:
    """Time between its tokens on average, the move to the other node included."""
    assert outcome.finished_s is not None
    assert outcome.first_token_s is not None
    return (outcome.finished_s - outcome.first_token_s) / (outcome.num_tokens - 1)


def compared(rate_per_s: float, num_requests: int, seed: int) -> list[dict[str, Any]]:
    """All ways at one rate; ``ratio`` of the 99th percentile of times between tokens: both over parted."""
    requests = drawn(rate_per_s, num_requests, seed)
    both = figures(*simulated(requests, 0, NETWORKS_PER_S["10 Gbit/s"]))
    found = [{"rate_rps": rate_per_s, "nodes": f"{NUM_NODES} both", "network": "", "sent": "", **both}]
    for network, network_per_s in NETWORKS_PER_S.items():
        for num_prefill in range(1, NUM_NODES):
            for sent, read_ahead in SENT.items():
                one = figures(*simulated(requests, num_prefill, network_per_s, read_ahead=read_ahead))
                ratio = {"tpot_p99_ratio": both["tpot_p99_s"] / one["tpot_p99_s"]}
                nodes = f"{num_prefill} prefill, {NUM_NODES - num_prefill} decode"
                line = {"rate_rps": rate_per_s, "nodes": nodes, "network": network, "sent": sent}
                found.append({**line, **one, **ratio})
    return found


def pauses() -> list[dict[str, Any]]:
    """Between the two tokens of lone requests, and when the first one came."""
    found = []
    for network, network_per_s in NETWORKS_PER_S.items():
        for prompt_tokens in LONE_PROMPTS:
            line: dict[str, Any] = {"network": network, "prompt_tokens": prompt_tokens}
            lone = [WorkloadRequest(0.0, MODEL, CLASS, prompt_tokens, 2)]
            for sent, read_ahead in SENT.items():
                run, _ = simulated(lone, NUM_NODES // 2, network_per_s, read_ahead=read_ahead)
                (one,) = run.recording.outcomes
                assert one.first_token_s is not None
                line[f"{sent}_ttft_s"], line[f"{sent}_pause_s"] = one.first_token_s - one.sent_s, tpot_s(one)
            found.append(line)
    return found


def shared_by_several(num_requests: int, seed: int) -> list[dict[str, Any]]:
    """Several models on the same nodes: all of both phases, and half of each."""
    requests = drawn(SEVERAL_RATE_PER_S, num_requests, seed, MODELS)
    network, network_per_s = list(NETWORKS_PER_S.items())[-1]
    lines = []
    for num_prefill in (0, NUM_NODES // 2):
        parted = f"{num_prefill} prefill, {NUM_NODES - num_prefill} decode"
        line = {"rate_rps": SEVERAL_RATE_PER_S, "models": len(MODELS), "network": network}
        line["nodes"] = parted if num_prefill else f"{NUM_NODES} both"
        lines.append({**line, **figures(*simulated(requests, num_prefill, network_per_s, MODELS))})
    return lines


@click.command()
@click.option("--requests", "num_requests", type=click.IntRange(min=20), default=NUM_REQUESTS, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of lines.")
def main(num_requests: int, seed: int, as_json: bool) -> None:
    """Compare nodes that do both with nodes that do one of both."""
    lines = [rounded(one) for rate in RATES_PER_S for one in compared(rate, num_requests, seed)]
    lines += map(rounded, [*pauses(), *shared_by_several(num_requests, seed)])
    if as_json:
        click.echo(json.dumps({"requests": num_requests, "seed": seed, "lines": lines}, indent=2))
        return
    for line in lines:
        click.echo("  ".join(f"{name} {value}" for name, value in line.items() if value != ""))


if __name__ == "__main__":
    main()

"""Nodes whose phases follow the load, beside every fixed split of them, while the mix of lengths shifts.

    python benchmarks/phase_shifts.py --seed 10 --json

In the simulator: four A100s with Mistral-7B by their published numbers, with the live cores, over 100 Gbit/s. First
most requests are prompts of some thousand tokens with short answers, then nearly all are chats with long ones; both
want their first token within `TTFT_S` and further ones every `TPOT_S`. The same requests go to four nodes of both
phases, to each fixed split, and to four nodes with ``phases: auto``. ``day`` shifts once, ``gusts`` shifts every
`GUST_S`, sooner than a load is known; ``chats`` does not shift. Lengths vary by a third, times are random; no seed
was looked at for the formulas but 0. The same options give the same figures on every machine. Ten minutes a seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import click
from phases import figures

from services.simulator.cluster.cluster import fast
from services.simulator.devices.catalogue import cluster_config, devices_of, phases_of
from services.simulator.reports.report import attainment, rounded
from services.simulator.simulation import Scenario, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.clients import SloClass
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import PhaseOption

MODEL, MAX_MODEL_LEN = "mistral-7b", 8192
NUM_NODES, NUM_SEQS = 4, 128
NETWORK_PER_S = 12.5e9
CLASS, TTFT_S, TPOT_S = "chat", 4.0, 0.025
SPREAD = 1 / 3
SHIFT_S, GUST_S = 240.0, 45.0


class Mix(NamedTuple):
    """What comes for a while; lengths are tokens of prompt and answer, each varies by `SPREAD`."""

    rate_per_s: float
    long_share: float
    long: tuple[int, int]
    chat: tuple[int, int]


PROMPTS, ANSWERS = Mix(5.0, 0.8, (6000, 100), (300, 300)), Mix(9.0, 0.02, (6000, 100), (300, 600))
DAYS: Mapping[str, Sequence[tuple[float, Mix]]] = {
    "day": [(SHIFT_S, PROMPTS), (SHIFT_S, ANSWERS)],
    "gusts": [(GUST_S, PROMPTS), (GUST_S, ANSWERS)] * 3,
    "chats": [(SHIFT_S, ANSWERS)],
}
SPLITS: Mapping[str, Mapping[str, PhaseOption]] = {
    "4 both": {},
    **{
        f"{number} prefill, {NUM_NODES - number} decode": phases_of({"a100": number}, {"a100": NUM_NODES - number})
        for number in range(1, NUM_NODES)
    },
    "4 auto": phases_of({}, {}, {"a100": NUM_NODES}),
}


def drawn(parts: Sequence[tuple[float, Mix]], seed: int) -> list[WorkloadRequest]:
    """Requests of one mix after the other, at random times."""
    draw, at_s, end_s, found = Random(seed), 0.0, 0.0, list[WorkloadRequest]()
    for lasts_s, mix in parts:
        end_s += lasts_s
        while (at_s := at_s + draw.expovariate(mix.rate_per_s)) < end_s:
            lengths = mix.long if draw.random() < mix.long_share else mix.chat
            prompt, output = (round(tokens * draw.uniform(1 - SPREAD, 1 + SPREAD)) for tokens in lengths)
            found.append(WorkloadRequest(at_s, MODEL, CLASS, prompt, output))
        at_s = end_s
    return found


def compared(name: str, seed: int, splits: Sequence[str]) -> Iterator[dict[str, Any]]:
    """These splits, for the same requests; ``kept_first``: of those that came within the first part."""
    requests, (first_s, _) = drawn(DAYS[name], seed), DAYS[name][0]
    lengths = {MODEL: MAX_MODEL_LEN}
    devices = {
        node: replace(one, network_bytes_per_s=NETWORK_PER_S)
        for node, one in devices_of({"a100": NUM_NODES}, [MODEL], max_model_lens=lengths).items()
    }
    for split in splits:
        phases = SPLITS[split]
        config = cluster_config(list(devices), [MODEL], QueueOptions(), NUM_SEQS, lengths, phases=phases)
        config = config.model_copy(update={"slo_classes": {CLASS: SloClass(ttft_s=TTFT_S, tpot_s=TPOT_S)}})
        run = simulate(Scenario(config, devices, requests, fast))
        early = [one for one in run.recording.outcomes if one.request.arrival_s < first_s]
        line = {"load": name, "nodes": split, **figures(run, config), "kept_first": attainment(early, config)}
        line["answers_s"] = len(requests) / (run.end_s - run.start_s)
        line["changes"] = [[one.time_s - run.start_s, one.node, one.phases] for one in run.recording.turns]
        yield rounded(line)


@click.command()
@click.option("--load", "names", type=click.Choice(list(DAYS)), multiple=True, default=list(DAYS))
@click.option("--nodes", "splits", type=click.Choice(list(SPLITS)), multiple=True, default=list(SPLITS))
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of lines.")
def main(names: tuple[str, ...], splits: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Compare nodes that follow the load with every fixed split."""
    lines = (line for name in names for line in compared(name, seed, splits))
    if as_json:
        click.echo(json.dumps({"seed": seed, "lines": list(lines)}, indent=2))
        return
    for line in lines:
        click.echo("  ".join(f"{name} {value}" for name, value in line.items()))


if __name__ == "__main__":
    main()

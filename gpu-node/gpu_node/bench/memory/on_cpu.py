"""Cases on the CPU device with the real model: each policy in turn, several times, and the median of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

from gpu_node.bench.memory.cases import MAX_MODEL_LEN, Case, engine_options
from gpu_node.bench.memory.run import Outcome, PressureRun
from gpu_node.bench.memory.workload import requests
from gpu_node.engine.evictions.move_rates import measured_rates
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import checked_path

_NUMBER_BYTES = 2


def run_on_cpu(
    config: ClusterConfig,
    cases: Sequence[Case],
    num_repeats: int,
    seed: int,
    advance: Callable[[int], None],
) -> Iterator[tuple[Case, Outcome]]:
    """Of the first node and model of the configuration."""
    node, spec = config.nodes[0], config.models[0]
    shape = open_checkpoint(checked_path(spec)).config
    token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * _NUMBER_BYTES
    outcomes: dict[Case, list[Outcome]] = {case: [] for case in cases}
    for number in range(num_repeats):
        for case in cases if number % 2 == 0 else reversed(cases):
            outcomes[case].append(_run(node, spec, case, token_bytes, seed, advance))
    for case, found in outcomes.items():
        middle = median(one.requests_per_s for one in found)
        yield case, min(found, key=lambda one: abs(one.requests_per_s - middle))


def _run(
    node: NodeSpec,
    spec: ModelSpec,
    case: Case,
    token_bytes: int,
    seed: int,
    advance: Callable[[int], None],
) -> Outcome:
    options = engine_options(case, token_bytes)
    with closing(CpuExecutor(options, node.num_threads, node.cpus)) as executor:
        asked = replace(spec, max_model_len=MAX_MODEL_LEN)
        rates = measured_rates(executor, executor.load_model(asked))
        executor.unload_model(asked.name)
        load = requests(case.num_requests, case.input_tokens, case.max_tokens, seed)
        run = PressureRun(executor, options, asked, load, rates=rates, clock=time.perf_counter)
        return run.outcome(advance)

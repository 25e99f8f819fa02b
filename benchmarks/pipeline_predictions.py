"""How well steps and waits are predicted where a predicted device runs a pipeline, beside where it does not.

Mistral-7B on predicted A100s, 1,024 tokens in and 512 out; the pipeline is searched here (`--quick`). Three settings:
the usual step, a step as long as the pipeline's, and that with the pipeline. Told of each: the median and the 95th
percentile of the learner's error before each step (steps that only decode, and full ones), and of a whole simulation
what the queue manager's predicted waits are worth. Prints JSON. Fewer than some 1,500 requests do not fill the memory:
then no step takes the pipeline.

    python benchmarks/pipeline_predictions.py --requests 3000
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from gpu_node.bench.step_log import LoggedStep, LoggingExecutor
from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.cost_learner import CostLearner
from services.pipeline.operators.setting import Setting
from services.pipeline.reports.search_report import pipeline_file
from services.pipeline.search.search import QUICK, search
from services.simulator.devices.catalogue import STEP_TOKENS, cluster_config, devices_of, with_pipeline
from services.simulator.devices.device import SimulatedDevice
from services.simulator.devices.device_executor import device_executor
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, simulate
from services.simulator.workloads.arrivals import poisson
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig
from shared.config.hardware import model_named
from shared.config.pipelines.pipeline_file import PUBLISHED, PipelineFile
from shared.config.services.queue import QueueOptions
from shared.messages.requests.payload import Payload, Sampling
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.machine import machine

MODEL, DEVICE, ROWS, NUM_DEVICES = "mistral-7b", "a100", 1152, 2
LENGTHS = MeanLengths(1024, 512)
MAX_NUM_SEQS = 384
NUM_LEARNT = 50
"""Steps before errors count."""


def found_pipeline() -> PipelineFile:
    """Of one device."""
    group, model, batch = machine(DEVICE, 1), model_named(MODEL), DenseBatch(ROWS, LENGTHS)
    setting = replace(Setting.published(group, model, batch), may_spread=False)  # as the steps of an engine
    return pipeline_file(search(setting, QUICK, time.monotonic), group, model, batch, PUBLISHED)


def learner_errors(
    device: SimulatedDevice, config: ClusterConfig, requests: Sequence[WorkloadRequest]
) -> dict[str, Any]:
    """Of the live engine's steps on the device, with every second request as it comes."""
    spec, options = config.models[0], replace(config.engine, async_scheduling=False)
    executor = LoggingExecutor(device_executor(device, options, None))
    engine = Engine(executor, options)
    engine.load_model(spec)
    now, number = 0.0, 0
    while engine.has_work or number < len(requests):
        while number < len(requests) and (requests[number].arrival_s <= now or not engine.has_work):
            now = max(now, requests[number].arrival_s)
            engine.add(_payload(number, requests[number]))
            number += 1
        engine.step(now)
        now += executor.steps[-1].duration_s
    learner = CostLearner(device.models[MODEL].cost)
    errors: dict[str, list[float]] = {"decodes": [], "full": [], "other": []}
    for number, step in enumerate(executor.steps):
        shape = step.shape
        size = shape.num_rows, shape.num_context_tokens(), shape.num_attended()
        cost = learner.cost
        assert cost is not None, "it begins with what the device costs plainly"
        if number >= NUM_LEARNT:
            errors[_kind(step, config.engine.step_tokens)].append(abs(cost.predict_s(*size) / step.duration_s - 1))
        learner.learn(*size, step.duration_s)
    return {
        "seconds": round(sum(step.duration_s for step in executor.steps), 3),
        **{
            kind: {"steps": len(found), "median": _quantile(found, 0.5), "p95": _quantile(found, 0.95)}
            for kind, found in errors.items()
        },
    }


def _payload(number: int, one: WorkloadRequest) -> Payload:
    sampling = Sampling(max_tokens=one.output_tokens, temperature=0.0, ignore_eos=True)
    return Payload(str(number), 0, "bench", MODEL, [number % 999 + 1] * one.prompt_tokens, sampling)


def _kind(step: LoggedStep, step_tokens: int) -> str:
    if step.is_decode:
        return "decodes"
    return "full" if step.shape.num_rows >= step_tokens else "other"


def _quantile(values: Sequence[float], share: float) -> float | None:
    return round(sorted(values)[int(share * (len(values) - 1))], 4) if values else None


def main() -> None:
    """All three settings, on the same requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    file = found_pipeline()
    requests = [
        WorkloadRequest(arrival_s, MODEL, "batch-1", int(LENGTHS.prompt_tokens), int(LENGTHS.output_tokens))
        for arrival_s in poisson(arguments.rate, arguments.requests, Random(arguments.seed))
    ]
    plain = devices_of({DEVICE: NUM_DEVICES}, [MODEL])
    piped = {name: with_pipeline(one, file) for name, one in plain.items()}
    found: dict[str, Any] = {"layer_s": file.layer_s, "sequential_s": file.sequential_s}
    for name, devices, step_tokens in (
        ("plain", plain, max(STEP_TOKENS, MAX_NUM_SEQS)),
        ("plain, long steps", plain, ROWS),
        ("pipeline", piped, ROWS),
    ):
        sys.stderr.write(f"{name}\n")
        config = cluster_config(list(devices), [MODEL], QueueOptions(), MAX_NUM_SEQS, step_tokens=step_tokens)
        run = report(simulate(Scenario(config, devices, requests)))
        kept = ("makespan_s", "goodput_rps", "attainment", "estimator_r2", "estimator_mean_error_s")
        found[name] = {
            "learner": learner_errors(next(iter(devices.values())), config, requests[::NUM_DEVICES]),
            "simulation": {key: run[key] for key in kept if key in run},
        }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

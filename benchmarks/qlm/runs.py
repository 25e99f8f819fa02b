"""What the benchmarks in the simulator share: a case, its run, its figures, and what a result says of its making."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kept_rows import KeptRows, Row, code_commit
from variants import ALL_OPERATIONS

from cli.errors import CliError
from cli.progress_bar import progress_bar
from cli.simulate.workload_option import workload_choice
from services.simulator.devices import catalogue
from services.simulator.devices.device import SimulatedDevice
from services.simulator.reports.report import report
from services.simulator.simulation import PLAN_VISITS, SOLVE_S, Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config import hardware
from shared.config.services.policies import POLICY_RULES
from shared.config.services.queue import OperationOptions, QueueOptions

POLICIES = tuple(POLICY_RULES)
SATURATED_PER_DEVICE = 600
"""Requests that come at once where a cluster's capacity is measured: more than twice what fits into its batches."""
SATURATED_FROM, SATURATED_TO = 0.3, 0.6
"""Of these requests: before, batches fill and the short answers come first; after, the first queues are empty."""
AT_ONCE_PER_S = 1e5
FIGURES = (
    "num_requests",
    "num_unserved",
    "slo_attainment",
    "slo_attainment_by_class",
    "slo_attainment_by_model",
    "started_in_time",
    "throughput_rps",
    "output_tok_s",
    "makespan_s",
    "ttft_p50_s",
    "ttft_p99_s",
    "ttft_by_class",
    "model_swaps",
    "evictions",
    "migrations",
    "preemptions",
    "num_plans",
    "node_hours",
    "idle_while_waiting_share",
    "idle_while_waiting_by_cause",
    "device_utilisation",
    "device_utilisation_by_kind",
)
"""Of a report, those that a benchmark keeps."""

Figures = Callable[[SimulationRun], Row]


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation."""

    label: str
    devices: Mapping[str, SimulatedDevice]
    models: Sequence[str]
    requests: Sequence[WorkloadRequest]
    policy: str = "qlm"
    """As the configuration names it."""
    delta: float | None = None
    """None is the default of the configuration."""
    operations: OperationOptions = ALL_OPERATIONS
    called: str = ""
    """What its row calls the policy, where that says more than its name."""

    def scenario(self) -> Scenario:
        """What is simulated."""
        options = {"policy": self.policy, "operations": self.operations}
        queue = QueueOptions.model_validate(options if self.delta is None else options | {"delta": self.delta})
        config = catalogue.cluster_config(list(self.devices), self.models, queue)
        return Scenario(config, self.devices, self.requests)

    def question(self) -> str:
        """The same for the same simulation of the same label, and only for it."""
        devices = sorted(self.devices.items())
        simulated = repr((devices, self.models, self.requests, self.policy, self.delta, self.operations))
        return f"{self.label}, {self.policy}: {hashlib.sha256(simulated.encode()).hexdigest()}"


def nothing_more(run: SimulationRun) -> Row:
    """For figures that are in the report alone."""
    del run
    return {}


def run_all(
    cases: Iterable[Case], num_cases: int, rows: KeptRows, more: Figures = nothing_more, num_jobs: int = 1
) -> list[Row]:
    """A row a case, in their order, with what ``more`` finds in its run. Cases may be made one by one.

    Several jobs are processes of their own; then ``more`` has to be a function of a module.
    """
    done: list[Row] = []
    with progress_bar("simulations", num_cases) as show:
        if num_jobs == 1:
            for case in cases:
                run = partial(_run, case, more, lambda part: show(len(done) + part))
                done.append(rows.measured(case.question(), run))
                show(len(done))
            return done
        for row in _side_by_side(cases, rows, more, num_jobs):
            done.append(row)
            show(len(done))
    return done


def _side_by_side(cases: Iterable[Case], rows: KeptRows, more: Figures, num_jobs: int) -> Iterator[Row]:
    with ProcessPoolExecutor(num_jobs) as pool:
        asked = [
            (question, None if rows.has(question) else pool.submit(_run, case, more, show_nothing))
            for question, case in ((case.question(), case) for case in cases)
        ]
        for question, future in asked:
            yield rows.measured(question, future.result if future is not None else _unasked)


def show_nothing(part: float) -> None:
    """Of a run beside others, only its end is told."""
    del part


def _unasked() -> Row:
    raise AssertionError("a kept row is not measured")


def _run(case: Case, more: Figures, progress: Callable[[float], None]) -> Row:
    began_s = time.process_time()
    run = simulate(case.scenario(), lambda num_over: progress(num_over / len(case.requests)))
    processor_s = time.process_time() - began_s
    return {"label": case.label, "policy": case.called or case.policy, **figures(run, processor_s), **more(run)}


def figures(run: SimulationRun, processor_s: float) -> dict[str, Any]:
    """Of a run that took so much processor time."""
    found = report(run)
    return {name: found[name] for name in FIGURES} | {"processor_s": round(processor_s, 2)}


def saturated_rps(
    devices: Mapping[str, SimulatedDevice], models: Sequence[str], requests: Sequence[WorkloadRequest]
) -> float:
    """Answers a second of devices that have all their work before them, in the order that QLM's scheduler finds."""
    with progress_bar("answers, for the capacity", len(requests)) as show:
        run = simulate(Case("saturated", devices, models, requests).scenario(), show)
    ends_s = sorted(one.finished_s for one in run.recording.outcomes if one.finished_s is not None)
    first, last = int(SATURATED_FROM * len(ends_s)), int(SATURATED_TO * len(ends_s))
    return (last - first) / (ends_s[last] - ends_s[first])


def drawn(workload: str, rate_per_s: float | None, num_requests: int, seed: int) -> list[WorkloadRequest]:
    """Requests of ``wa``, ``wb``, ``wc`` or a file; without a rate, as fast as the file's; `SystemExit` if neither."""
    try:
        choice = workload_choice(
            "--workload", workload, rate_per_s, None, None, allow_left_out=True, max_model_len=catalogue.MAX_MODEL_LEN
        )
        return choice.draw(num_requests, seed)
    except CliError as error:
        raise SystemExit(str(error)) from error


def models_of(requests: Sequence[WorkloadRequest]) -> list[str]:
    """Models that are asked for."""
    return sorted({request.model for request in requests})


def capacity_rps(workload: str, counts: Mapping[str, int], seed: int, rows: KeptRows) -> float:
    """`saturated_rps` of devices of the catalogue under a workload."""
    requests = drawn(workload, AT_ONCE_PER_S, SATURATED_PER_DEVICE * sum(counts.values()), seed)
    models = models_of(requests)
    devices = catalogue.devices_of(counts, models)
    question = "capacity of " + Case("saturated", devices, models, requests).question()
    found: float = rows.measured(question, lambda: {"rps": saturated_rps(devices, models, requests)})["rps"]
    return found


def device_counts(text: str) -> dict[str, int]:
    """``KIND=NUMBER,KIND=NUMBER``, for argparse."""
    try:
        counts = {kind: int(number) for kind, number in (part.split("=") for part in text.split(","))}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: say devices as a100=5,a10=3") from error
    if set(counts) - set(hardware.DEVICES) or min(counts.values()) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least one each of {', '.join(hardware.DEVICES)}")
    return counts


def numbers(text: str) -> list[float]:
    """Positive numbers with commas between them, for argparse."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers with commas between them are needed") from error
    if min(found) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers above 0 are needed")
    return found


def seed_numbers(text: str) -> list[int]:
    """Whole numbers from 0 on with commas between them, for argparse."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers with commas between them are needed") from error
    if min(found) < 0 or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r}: different numbers from 0 on are needed")
    return found


def job_count(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number above 0 is needed")
    return int(text)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """``--rows`` and ``--json``."""
    parser.add_argument("--rows", type=Path, help="file that keeps each row, so that the same code need not repeat it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def names(text: str, known: Sequence[str]) -> list[str]:
    """Names with commas between them, of those that are known, for argparse."""
    found = text.split(",")
    if strangers := [name for name in found if name not in known]:
        raise argparse.ArgumentTypeError(f"no {', '.join(strangers)}; there are {', '.join(known)}")
    return found


def provenance(seeds: Sequence[int]) -> dict[str, Any]:
    """What has to be the same so that the same result comes out, but for processor times."""
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": code_commit() or "changes that are not committed",
        "seeds": list(seeds),
        "parameters": {
            "max_num_seqs": catalogue.MAX_NUM_SEQS,
            "step_tokens": catalogue.STEP_TOKENS,
            "max_model_len": catalogue.MAX_MODEL_LEN,
            "host_kv_bytes": catalogue.HOST_KV_BYTES,
            "host_models": catalogue.HOST_MODELS,
            "default_delta": QueueOptions().delta,
            "plan_visits": PLAN_VISITS,
            "solve_s": SOLVE_S,
            "compute_efficiency": hardware.COMPUTE_EFFICIENCY,
            "memory_efficiency": hardware.MEMORY_EFFICIENCY,
            "step_overhead_s": hardware.STEP_OVERHEAD_S,
        },
        "python": platform.python_version(),
    }


def read_results(paths: Sequence[str]) -> list[dict[str, Any]]:
    """What benchmarks have printed with ``--json``; `SystemExit` for what is none."""
    found = []
    for path in paths:
        try:
            found.append(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path} is no result of a benchmark: {error}") from error
    return found

"""Profiles one model on one node: ``python -m gpu_node.bench.profiling``, started by `treadle profile`.

Measures the first node of the configuration with its first model, on the executor that the node asks for: real steps
over a grid of batches and contexts, how long loading takes, how fast keys and values move. The cost is fitted to one
part of the grid and judged by the other. Says on stdout what `gpu_node.bench.report` defines; what is wrong goes to
stderr.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_node.bench.measurement import Bench
from gpu_node.bench.point import BenchPoint
from gpu_node.bench.predictors.cost_sample import KINDS, STORE_KINDS
from gpu_node.bench.predictors.samples import CostBench
from gpu_node.bench.predictors.ssd_samples import ssd_samples
from gpu_node.bench.profile_grid import (
    BATCHES,
    CONTEXTS,
    HELD_OUT_BATCHES,
    HELD_OUT_CONTEXTS,
    Measured,
    fit_grid,
    grid,
)
from gpu_node.bench.report import (
    CostSamples,
    PointProgress,
    PredictorTables,
    ProfileResult,
    ProfileStart,
    ReportLine,
    encode,
)
from gpu_node.bench.step_fit import StepSample
from gpu_node.bench.step_log import LoggedStep
from gpu_node.engine.border.executor import Executor, ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.move_rates import measured_rates
from gpu_node.executors.memory.host_tier import HOST
from gpu_node.executors.node_executor import make_executor
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig, load_config
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.measured.predictors import ShapeTables
from shared.errors import OperatorError
from shared.files.model_file import checked_path

WARM_UP = BenchPoint(2, 8, 4)
LEAST_POINTS = 5
"""Of a cost, fitted and held-out ones together."""


def profile(config: ClusterConfig) -> None:
    """Measure everything, and say it."""
    node, spec, options = config.nodes[0], config.models[0], config.engine
    executor = make_executor(node, options)
    _say(PointProgress(f"loading {spec.name}"))
    disk_load_s, host_load_s = _load_times(executor, spec)
    bench = Bench(executor, options, spec)
    fitted = grid(BATCHES, CONTEXTS, options, bench.model)
    held_out = grid(HELD_OUT_BATCHES, HELD_OUT_CONTEXTS, options, bench.model)
    _say(ProfileStart(sum(point.num_rows for point in [*fitted, *held_out])))
    bench.measure(WARM_UP, lambda _: None)
    measured: list[Measured] = []
    for point in [*fitted, *held_out]:
        doing = f"{point.num_requests} x {point.num_prompt_tokens} tokens"
        _say(PointProgress(doing))
        run = bench.measure(point, lambda _: None)
        _say(PointProgress(doing, point.num_rows))
        measured += _sorted(point, run.steps, is_held_out=point not in fitted)
    fitted_cost = fit_grid(measured)
    result = ProfileResult(
        device=executor.device,
        cost=fitted_cost.cost,
        fit_error=fitted_cost.fit_error,
        held_out_error=fitted_cost.held_out_error,
        disk_load_s=disk_load_s,
        host_load_s=host_load_s,
        kv_bytes_per_s=_kv_bytes_per_s(executor, bench.model),
        load=os.getloadavg()[0],
    )
    for one in measured:
        _say(one.line(result.cost))
    tables = _predictors(executor, options, spec)
    if tables is not None:
        _say(tables)
    _say(result)


def _predictors(executor: Executor, options: EngineOptions, spec: ModelSpec) -> PredictorTables | None:
    """None where blocks cannot be moved, so that there is nothing to choose, or the model is too short to tell."""
    from gpu_node.bench.predictors.tables import table  # scikit-learn takes a second to import

    executor.unload_model(spec.name)
    bench = CostBench(executor, options, spec)
    samples = bench.samples(lambda doing: _say(PointProgress(doing)))
    num_points = [sum(one.kind == kind and one.seconds > 0 for one in samples) for kind in KINDS]
    if min(num_points) < LEAST_POINTS:
        return None
    shape = open_checkpoint(checked_path(spec)).config
    _say(CostSamples(shape.num_layers, shape.hidden_size, samples))
    _say(PointProgress("regressions"))
    kinds = KINDS
    if options.tiers.ssd_folder is not None:
        _say(PointProgress("blocks on the SSD"))
        samples += ssd_samples(Path(options.tiers.ssd_folder).expanduser(), bench.model.block_bytes)
        kinds = (*KINDS, *STORE_KINDS)
    tables = {one: table(one, samples, shape.num_layers, shape.hidden_size) for one in kinds}
    return PredictorTables(ShapeTables(shape.num_layers, shape.hidden_size, **tables))


def _sorted(point: BenchPoint, steps: Sequence[LoggedStep], *, is_held_out: bool) -> list[Measured]:
    """Decodes and prompts apart; a step with both counts as a prompt's."""
    decodes = [_sample(step) for step in steps if step.is_decode]
    prompts = [_sample(step) for step in steps if not step.is_decode]
    kinds = (("decode", decodes), ("prompt", prompts))
    return [Measured(kind, point, samples, is_held_out) for kind, samples in kinds if samples]


def _sample(step: LoggedStep) -> StepSample:
    shape = step.shape
    return StepSample(shape.num_rows, shape.num_context_tokens(), shape.num_attended(), step.duration_s)


def _load_times(executor: Executor, spec: ModelSpec) -> tuple[float, float]:
    """From the file, then from host memory; 0.0 for the latter where weights do not stay there."""
    times = []
    for _ in range(2):
        started_s = time.perf_counter()
        executor.load_model(spec)
        times.append(time.perf_counter() - started_s)
        executor.unload_model(spec.name)
    stays = executor.tiers.get(spec.name) == HOST
    return times[0], times[1] if stays else 0.0


def _kv_bytes_per_s(executor: Executor, model: LoadedModel) -> float:
    """Out and back in, of blocks that are free; 0.0 where they cannot be moved."""
    rates = measured_rates(executor, model)
    if not rates.out_bytes_per_s:
        return 0.0
    return 2 / (1 / rates.out_bytes_per_s + 1 / rates.in_bytes_per_s)


def _say(line: ReportLine) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    try:
        profile(load_config())
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Profiles one model on a node with vLLM: ``PYTHON -m gpu_node.vllm.serving.profiling``, started by `treadle profile`.

As `gpu_node.bench.profiling`, over the same grid; steps are measured where vLLM takes them. Runs in vLLM's environment.
"""

from __future__ import annotations

import itertools
import os
import queue
import random
import shutil
import sys
import time
from pathlib import Path

from gpu_node.bench.point import BenchPoint
from gpu_node.bench.profile_grid import (
    BATCHES,
    CONTEXTS,
    HELD_OUT_BATCHES,
    HELD_OUT_CONTEXTS,
    Measured,
    fit_grid,
    grid,
)
from gpu_node.bench.report import PointProgress, ProfileResult, ProfileStart, ReportLine, encode
from gpu_node.bench.step_fit import StepSample
from gpu_node.engine.border.model import LoadedModel
from gpu_node.vllm.installation.environment import preload, set_environment
from gpu_node.vllm.installation.installed import check_installed, check_libraries
from gpu_node.vllm.installation.processes import begin_group
from gpu_node.vllm.words.border import CoreDiedError, CoreEvent, CoreRequest, CoreStep, EngineCore, ModelRefusedError
from shared.config.config import ClusterConfig, load_config
from shared.errors import OperatorError

WARM_UP = BenchPoint(2, 8, 4)
FIRST_TOKEN = 1_000
"""Of a vocabulary, behind those of special use."""


class PointRunner:
    """Runs the points of a grid on one vLLM, one after the other. Texts that are embedded or scored have no decodes."""

    def __init__(self, core: EngineCore, model: LoadedModel, events: queue.Queue[CoreEvent]) -> None:
        self._core = core
        self._model = model
        self._events = events
        self._ids = itertools.count()
        self._chance = random.Random(0)  # noqa: S311 - tokens of prompts

    def measure(self, point: BenchPoint, *, is_held_out: bool) -> list[Measured]:
        """Decodes and prompts apart; a step with both counts as a prompt's."""
        left = {str(next(self._ids)) for _ in range(point.num_requests)}
        for core_id in sorted(left, key=int):
            self._core.add(self._request(core_id, point))
        kinds: dict[str, list[StepSample]] = {"decode": [], "prompt": []}
        while left:
            step = self._next()
            size = step.size
            if size is not None:
                sample = StepSample(size.num_rows, size.num_context_tokens, size.num_attended_tokens, size.duration_s)
                is_decode = size.num_rows <= point.num_requests and not self._model.gives_rows
                kinds["decode" if is_decode else "prompt"].append(sample)
            left -= {output.core_id for output in step.outputs if output.is_last}
        return [Measured(kind, point, samples, is_held_out) for kind, samples in kinds.items() if samples]

    def _next(self) -> CoreStep:
        event = self._events.get()
        if isinstance(event, CoreDiedError):
            raise event
        return event

    def _request(self, core_id: str, point: BenchPoint) -> CoreRequest:
        tokens = [self._chance.randrange(FIRST_TOKEN, self._model.vocab_size) for _ in range(point.num_prompt_tokens)]
        greedy = (), 0, 0.0, 0, 1.0, 0.0, 0.0, 0.0, 1.0, (), None
        return CoreRequest(core_id, tokens, point.num_output_tokens, *greedy, task=self._model.task)


def profile(config: ClusterConfig, folder: Path) -> None:
    """Measure everything, and say it."""
    from gpu_node.vllm.serving.starter import CoreStarter  # imports vLLM, which reads its environment

    node, spec, options = config.nodes[0], config.models[0], config.engine
    events: queue.Queue[CoreEvent] = queue.Queue()
    starter = CoreStarter(node, options, folder, lambda _, event: events.put(event))
    _say(PointProgress(f"loading {spec.name}"))
    started_s = time.perf_counter()
    core, model = starter.start(spec)
    try:
        load_s = time.perf_counter() - started_s
        runner = PointRunner(core, model, events)
        fitted = grid(BATCHES, CONTEXTS, options, model)
        held_out = grid(HELD_OUT_BATCHES, HELD_OUT_CONTEXTS, options, model)
        _say(ProfileStart(sum(point.num_rows for point in [*fitted, *held_out])))
        runner.measure(WARM_UP, is_held_out=False)
        measured: list[Measured] = []
        for point in [*fitted, *held_out]:
            doing = f"{point.num_requests} x {point.num_prompt_tokens} tokens"
            _say(PointProgress(doing))
            measured += runner.measure(point, is_held_out=point not in fitted)
            _say(PointProgress(doing, point.num_rows))
    finally:
        core.close()
    found = fit_grid(measured)
    for one in measured:
        _say(one.line(found.cost))
    _say(
        ProfileResult(
            device=starter.device,
            cost=found.cost,
            fit_error=found.fit_error,
            held_out_error=found.held_out_error,
            disk_load_s=load_s,
            host_load_s=0.0,
            kv_bytes_per_s=0.0,
            load=os.getloadavg()[0],
        )
    )


def _keep_stdout() -> None:
    """For lines of the report; what vLLM's processes print goes where errors go."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def _say(line: ReportLine) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    try:
        config = load_config()
        check_installed()
        if not config.nodes[0].cuda_devices:
            check_libraries()
            preload()
        folder = begin_group()
        _keep_stdout()
        try:
            set_environment(config.nodes[0], folder)
            profile(config, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except (OperatorError, ModelRefusedError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":  # vLLM's processes import this file
    sys.exit(main())

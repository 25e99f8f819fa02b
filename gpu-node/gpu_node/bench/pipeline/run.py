"""A point with a pipeline and without: what is predicted of it, and what an engine makes of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from statistics import median

from gpu_node.bench.measurement import MeasurementError
from gpu_node.bench.pipeline.candidates import overlapped, predicted, sequential
from gpu_node.bench.pipeline.full_step import FullBatch, full_step
from gpu_node.bench.pipeline.play import Kind, Span, lane_spans, makespan_s, slowed_by
from gpu_node.bench.point import BenchPoint
from gpu_node.bench.report import PipelineRow
from gpu_node.bench.roofline import Roofline
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.cost import program_costs, total
from gpu_node.graph.lanes import LaneQueue, ProgramLane
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import Program
from gpu_node.graph.step_shape import SequencePart, StepShape
from gpu_node.kernels.cpu import kernels_name
from shared.config.config import ClusterConfig
from shared.config.engines.engine import AUTO_PIPELINE, EngineOptions
from shared.config.pipelines.pipeline_file import PipelineFile, encode_pipeline
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from shared.messages.requests.payload import Payload, Sampling

SayDoing = Callable[[str], None]
"""Hears what is done now."""

PREFILL_LANES = ("memory", "compute")
PLAIN = "plain"
"""As without a pipeline: what `auto` is where it takes none. Its cache knows no other's prompts."""
NUM_STEPS, NUM_QUICK_STEPS = 15, 3
NUM_RUNS, NUM_QUICK_RUNS = 5, 1


@dataclass(frozen=True, slots=True)
class _Way:
    """An executor with the model, and its program in a pipeline."""

    executor: CpuExecutor
    engine: Engine
    model: LoadedModel
    lanes: Sequence[LaneQueue] = ()
    """Of its program in a pipeline, if it has one."""
    kinds: Sequence[Kind] = ()
    """Of that program's operators."""


@dataclass(frozen=True, slots=True)
class _FullStep:
    """How long a step took, and when its operators ran, where it went through lanes."""

    seconds: float
    spans: Mapping[int, Span]


class PipelineBench:
    """Engines of one model on one node, each with a pipeline of its own."""

    def __init__(
        self, config: ClusterConfig, program: Program, roofline: Roofline, *, quick: bool, say: SayDoing
    ) -> None:
        """``program``: as its family builds it."""
        self._options, self._spec, self._node = config.engine, config.models[0], config.nodes[0]
        self._program = optimize(program)
        self._num_layers = 1 + max(one.layer for one in program.operators if one.layer is not None)
        self._device = cpu_name(self._node.num_threads)
        self._roofline = roofline
        self._num_steps, self._num_runs = (NUM_QUICK_STEPS, NUM_QUICK_RUNS) if quick else (NUM_STEPS, NUM_RUNS)
        self._prefill_lanes = PREFILL_LANES[:1] if quick else PREFILL_LANES
        self._say = say

    def measure(self, point: BenchPoint) -> PipelineRow:
        """Predict every candidate, then run the point without, in parts alone, and as `auto` decides."""
        batch = FullBatch.of(point)
        options = replace(self._options, step_tokens=batch.num_rows, max_num_seqs=batch.num_running)
        name, device = self._spec.predict_as or self._spec.name, self._device
        files = {
            "whole": sequential(batch.num_rows, False, name, device),
            "halves": sequential(batch.num_rows, True, name, device),
            **{lane: overlapped(batch.num_rows, lane, name, device) for lane in self._prefill_lanes},
        }
        with ExitStack() as resources:
            ways = {name: self._way(resources, options, None) for name in ("off", PLAIN)}
            ways |= {way: self._way(resources, options, file) for way, file in files.items()}
            return self._measure(point, batch, ways, files)

    def _way(self, resources: ExitStack, options: EngineOptions, file: PipelineFile | None) -> _Way:
        self._say(f"loading {self._spec.name}")
        pipelines = NO_PIPELINES if file is None else Pipelines("bench", options.step_tokens, (file,))
        made = CpuExecutor(options, self._node.num_threads, self._node.cpus, pipelines=pipelines)
        executor = resources.enter_context(closing(made))
        engine = Engine(executor, options)
        model = engine.load_model(self._spec)
        if file is None:
            return _Way(executor, engine, model)
        piped = nano_batches(self._program, file)
        kinds = [(operator.kind, operator.share.sections) for operator in piped.operators]
        return _Way(executor, engine, model, piped.lanes, kinds)

    def _measure(
        self, point: BenchPoint, batch: FullBatch, ways: Mapping[str, _Way], files: Mapping[str, PipelineFile]
    ) -> PipelineRow:
        steps = self._steps(point, batch, ways)
        whole_s, parts_s = (_best_s(ways[name].lanes, steps[name].spans) for name in ("whole", "halves"))
        around_s = max(0.0, steps["whole"].seconds - sum(whole_s.values()))
        sequential_s = around_s + sum(whole_s.values())
        lanes = self._prefill_lanes
        first = ways[lanes[0]]
        slowed = slowed_by(first.lanes, parts_s, lane_spans(first.lanes, steps[lanes[0]].spans), first.kinds)
        played_s = {lane: around_s + makespan_s(ways[lane].lanes, parts_s, ways[lane].kinds, slowed) for lane in lanes}
        best = min(lanes, key=played_s.__getitem__)
        pipeline = predicted(files[best], played_s[best], sequential_s, self._num_layers, kernels_name())
        known = Pipelines(AUTO_PIPELINE, batch.num_rows, (pipeline,))
        auto = ways[PLAIN] if known.of(self._spec, self._device) is None else ways[best]
        speeds, bits_equal = self._runs(point, {"off": ways["off"], "nano": ways["halves"], "auto": auto})
        return PipelineRow(
            point=str(point),
            off_tok_s=speeds["off"],
            nano_only_tok_s=speeds["nano"],
            auto_tok_s=speeds["auto"],
            predicted_gain=sequential_s / played_s[best],
            bound_gain=self._bound_gain(ways["off"].model, point, batch),
            sequential_error=abs(sequential_s / steps["off"].seconds - 1),
            overlapped_error=abs(played_s[best] / steps[best].seconds - 1),
            bits_equal=bits_equal,
            r=slowed.of_lane[ProgramLane.COMPUTE],
            p=slowed.p,
            spread=slowed.spread,
            num_seen=slowed.num_seen,
            pipeline=encode_pipeline(pipeline),
        )

    # --- steps --------------------------------------------------------------------------------------------------------

    def _steps(self, point: BenchPoint, batch: FullBatch, ways: Mapping[str, _Way]) -> dict[str, _FullStep]:
        """A full step of median length, by way; they take turns. No request's blocks are used: none has come yet."""
        plans = {name: full_step(point, batch, way.model) for name, way in ways.items()}
        for name, way in ways.items():
            way.executor.submit(plans[name]).result()
        found: dict[str, list[_FullStep]] = {name: [] for name in ways}
        for number in range(self._num_steps):
            self._say(f"{point}: steps, {number + 1} of {self._num_steps}")
            for name, way in ways.items():
                seconds = way.executor.submit(plans[name]).result().duration_s
                spans = way.executor.lane_times(self._spec.name) if way.lanes else {}
                found[name].append(_FullStep(seconds, spans))
        return {name: sorted(some, key=lambda one: one.seconds)[len(some) // 2] for name, some in found.items()}

    def _bound_gain(self, model: LoadedModel, point: BenchPoint, batch: FullBatch) -> float:
        """What no overlap can exceed: each operator at its limit, beside all operators at the limit of all of them."""
        plan = full_step(point, batch, model)
        parts = tuple(SequencePart(one.start, len(one.token_ids)) for one in plan.sequences)
        shape = StepShape(parts, num_draws=sum(bool(one.draws) for one in plan.sequences))
        costs = program_costs(self._roofline.program, shape, self._roofline.sizes)
        rates = self._roofline.rates
        return sum(rates.seconds(cost) for cost in costs) / rates.seconds(total(costs))

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _runs(self, point: BenchPoint, ways: Mapping[str, _Way]) -> tuple[dict[str, float], bool]:
        """Output tokens a second, the median of runs that take turns; and whether all outputs are the same."""
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        bits_equal = True
        for number in range(self._num_runs):
            order = list(ways)[:: 1 if number % 2 == 0 else -1]
            outputs = {}
            for name in order:
                self._say(f"{point}: {name}, {number + 1} of {self._num_runs}")
                taken_s, outputs[name] = _run(ways[name], _payloads(point, ways[name].model, number, name))
                seconds[name].append(taken_s)
            bits_equal = bits_equal and all(one == outputs["off"] for one in outputs.values())
        num_tokens = point.num_requests * point.num_output_tokens
        return {name: num_tokens / median(some) for name, some in seconds.items()}, bits_equal


def _best_s(queues: Sequence[LaneQueue], spans: Mapping[int, Span]) -> dict[int, float]:
    """Seconds of each operator of the only lane, from the end of the one before it: what threads wait is its own."""
    (queue,) = queues
    found = {}
    before_s = 0.0
    for index in (turn.operator for turn in queue.turns if turn.operator in spans):
        found[index] = spans[index][1] - before_s
        before_s = spans[index][1]
    return found


def _payloads(point: BenchPoint, model: LoadedModel, run: int, way: str) -> list[Payload]:
    """Prompts of one run: the same for each way, others in each run, so that no cached prefix helps."""
    numbers = random.Random(run)  # noqa: S311 - the same prompts on every machine
    sampling = Sampling(max_tokens=point.num_output_tokens, temperature=0.0, ignore_eos=True)
    return [
        Payload(
            f"{way}-{run}-{number}",
            0,
            "bench",
            model.name,
            [numbers.randrange(model.vocab_size) for _ in range(point.num_prompt_tokens)],
            sampling,
        )
        for number in range(point.num_requests)
    ]


def _run(way: _Way, payloads: Sequence[Payload]) -> tuple[float, list[list[int]]]:
    """All requests at once: seconds to the last token, and the output of each."""
    outputs: dict[str, list[int]] = {payload.request_id: [] for payload in payloads}
    started_s = time.perf_counter()
    for payload in payloads:
        way.engine.add(payload)
    while way.engine.has_work:
        for chunk in way.engine.step(time.monotonic()):
            if chunk.error:
                raise MeasurementError(f"request {chunk.request_id}: {chunk.error}")
            outputs[chunk.request_id] += chunk.token_ids
    return time.perf_counter() - started_s, list(outputs.values())

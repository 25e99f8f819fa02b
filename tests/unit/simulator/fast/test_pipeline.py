"""The engine that jumps, on a device with a pipeline: full steps take its schedule, and what steps cost is learnt."""

from __future__ import annotations

from dataclasses import replace

from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from services.simulator.fast.engine import FastEngine
from shared.config.pipelines.pipeline_file import FORMAT, PUBLISHED, PipelineFile, PipelineOperator
from shared.pipelines.step_pipeline import StepPipeline
from tests.unit.simulator.engine_life import COST, KV_BYTES_PER_S, SPEC, TOKEN_BYTES, Ask, options, payload

FILE = PipelineFile(
    FORMAT,
    *("m", "d", 1, 16),
    profile=PUBLISHED,
    gap=0.0,
    layer_s=60e-6,
    sequential_s=100e-6,
    operators=(
        PipelineOperator("UGD", (0, 16), "compute", 0.6, 0.0, 50e-6),
        PipelineOperator("DecAttn", (0, 8), "memory", 0.4, 0.0, 50e-6),
    ),
)


def engine_of(model: ModelOnDevice) -> FastEngine:
    device = SimulatedDevice("d", {"m": model}, kv_bytes_per_s=KV_BYTES_PER_S)
    engine = FastEngine(device, options(32), lambda one: 5)
    engine.load_model(SPEC)
    return engine


def test_full_steps_take_the_pipeline_and_the_others_do_not() -> None:
    plain = ModelOnDevice(COST, TOKEN_BYTES, options(32).unmeasured_kv_bytes, 1.0, 0.1)
    piped = replace(plain, pipeline=StepPipeline(FILE, 4, 16.0))
    engine = engine_of(piped)
    engine.add(payload(0, Ask(0, 20, 5, 40)))
    full_s = engine.start(0.0)  # 16 of 20 tokens
    assert full_s == piped.predict_s(16, 16, 136) < COST.predict_s(16, 16, 136)
    engine.finish()
    rest_s = engine.start(full_s) - full_s
    assert abs(rest_s - COST.predict_s(4, 20, 74)) < 1e-12


def test_costs_are_learnt_where_they_are_more_than_four_numbers() -> None:
    plain = ModelOnDevice(COST, TOKEN_BYTES, options(32).unmeasured_kv_bytes, 1.0, 0.1)
    learnt: list[float] = []
    for model in (plain, replace(plain, pipeline=StepPipeline(FILE, 4, 16.0))):
        engine, now = engine_of(model), 0.0
        for number in range(6):
            engine.add(payload(number, Ask(0, 16, 5, 40)))
            while engine.has_work:
                now = engine.start(now)
                engine.finish()
        cost = engine.stats().cost
        assert cost is not None
        learnt.append(cost.predict_s(16, 16, 136))
    assert learnt[0] == COST.predict_s(16, 16, 136)
    faster_s = replace(plain, pipeline=StepPipeline(FILE, 4, 16.0)).predict_s(16, 16, 136)
    assert faster_s < learnt[1] < learnt[0], "on its way to what a full step takes now"

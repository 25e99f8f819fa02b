"""What is kept of a live run, and the simulator beside it: on a run of one request that is written down by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.process.step_file import StepLine
from shared.bus import streams
from shared.messages.codec import encode
from shared.messages.message import Message
from shared.messages.nodes import Heartbeat, NodeFacts
from shared.messages.placement import Plan, PlanRequest, Solved
from shared.messages.requests import Attempt, Evicted, EvictedRequest, Pulled, Submit
from shared.messages.slo import Slo
from shared.messages.step_cost import ModelRate, StepCost

QLM = Path(__file__).parents[2] / "benchmarks" / "qlm"
BEGAN_S = 1_000.0
STEP_S = 0.5
COST = StepCost(step_s=STEP_S, token_s=0.0, context_token_s=0.0)


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QLM)


def beat(node: str, model: str, swap_s: float, *known: str) -> Heartbeat:
    rates = [ModelRate(name, COST, kv_tokens=4096, kv_token_bytes=1024, load_s=0.0) for name in known]
    return Heartbeat(
        node=node,
        epoch=f"{node}-1",
        facts=NodeFacts(device="cpu", swap_s=swap_s, max_num_seqs=8, step_tokens=256, rates=rates),
        model=model,
        num_blocks=256,
        num_free_blocks=256,
        num_running=0,
        num_waiting=0,
    )


def steps(model: str) -> list[StepLine]:
    """Prompts and decodes that take alike; the device waits a little for the host before each."""
    return [
        StepLine(BEGAN_S, model, 1, rows, read, attended, STEP_S - 0.01, 0.01, follows=True, num_restored=0)
        for rows, read, attended in [(4, 4, 10), (1, 5, 5), (1, 6, 6)] * 40
    ]


def heard(after_s: float, stream: str, message: Message) -> Any:
    return importlib.import_module("live_record").Heard(BEGAN_S + after_s, stream, encode(message))


def recording() -> Any:
    """One request for the first model: sent when the trace begins, queued 0.1 s later, done after three steps."""
    client = importlib.import_module("live_client")
    request = importlib.import_module("live_trace").LiveRequest(0, 0.0, "hot", "batch-1", "Hi")
    seen = client.Seen(request, "r-1", 0.0, 0.6, 1.6, prompt_tokens=4, output_tokens=3)
    submit = Submit(
        request_id="r-1",
        gateway="g",
        model="hot",
        slo=Slo("batch-1", deadline_s=90),
        prompt_tokens=4,
        max_tokens=192,
    )
    gone = EvictedRequest("r-1", 0, 1, 5, "node-0")
    return importlib.import_module("live_record").Recording(
        config=importlib.import_module("live_cluster").two_nodes("qlm"),
        warm_up=client.Played(BEGAN_S - 5.0, []),
        trace=client.Played(BEGAN_S, [seen]),
        heard=[
            heard(-9.0, streams.SCHEDULER, beat("node-0", "hot", 4.0, "hot")),
            heard(-9.0, streams.SCHEDULER, beat("node-1", "hot", 2.0, "hot")),
            heard(-8.0, streams.SCHEDULER, beat("node-1", "cold", 3.0, "hot", "cold")),
            heard(-7.0, streams.SCHEDULER, beat("node-1", "hot", 0.25, "hot", "cold")),
            heard(0.1, streams.QUEUE, submit),
            heard(0.1, streams.QUEUE, Pulled(node="node-0", epoch="", group="g1", requests=[Attempt("r-1", 0)])),
            heard(0.2, streams.SCHEDULER, PlanRequest(version=7, groups=[])),
            heard(0.5, streams.QUEUE, Evicted(node="node-0", epoch="", requests=[gone])),
            heard(0.7, streams.SCHEDULER, Solved(plan=Plan(version=7, queues={}))),
        ],
        prompts={"r-1": [9_000, 9_001, 9_000, 3]},
        steps={"node-0": steps("hot"), "node-1": steps("cold")},
    )


def test_a_run_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    run = recording()
    run.save(tmp_path / "run")
    assert type(run).load(tmp_path / "run") == run


def test_a_run_tells_its_decisions() -> None:
    run = recording()
    assert [(start.time_s, start.node, start.request_id) for start in run.starts] == [(1000.1, "node-0", "r-1")]
    assert run.num_evicted == 1
    assert run.queued_s == {"r-1": 1000.1}
    assert run.plans == [(0, 0.5)]


def test_a_first_load_is_from_disk_and_what_a_node_never_had_costs_what_it_costs_others() -> None:
    run = recording()
    devices = importlib.import_module("live_devices").live_devices(run)
    assert list(devices) == ["node-0", "node-1"]
    for device in devices.values():
        assert list(device.models) == ["hot", "cold"]
        assert [(model.disk_load_s, model.host_load_s) for model in device.models.values()] == [(3.0, 0.25)] * 2
        for model in device.models.values():
            assert model.cost.predict_s(1, 5, 5) == pytest.approx(STEP_S, rel=0.01)


def test_the_replay_takes_as_long_as_its_steps() -> None:
    found = importlib.import_module("fidelity").compare(recording())
    assert found["makespan_s"]["simulated"] == pytest.approx(0.1 + 3 * STEP_S, abs=0.02)
    assert found["latency_mean_s"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert found["start_difference_median_s"] == pytest.approx(0.0, abs=0.02)
    assert found["same_node"] == 1.0

"""What is kept of a live run, and the simulator beside it: on a run of one request that is written down by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_node.engine.process.step_file import StepLine
from services.simulator.cluster.cluster import SMALL_PROBLEM_S
from shared.bus import streams
from shared.messages.codec import encode
from shared.messages.message import Message
from shared.messages.nodes.nodes import Heartbeat, NodeFacts
from shared.messages.nodes.placement import GroupLoad, PlacementProblem, Plan, PlanRequest, Solved
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, Evicted, EvictedRequest, Pulled, Submit
from shared.messages.requests.slo import Slo

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


def steps(model: str, step_s: float) -> list[StepLine]:
    """Prompts and decodes that take alike; the device waits a little for the host before each."""
    return [
        StepLine(BEGAN_S, model, 1, rows, read, attended, step_s - 0.01, 0.01, follows=True, num_restored=0)
        for rows, read, attended in [(4, 4, 10), (1, 5, 5), (1, 6, 6)] * 40
    ]


def heard(after_s: float, stream: str, message: Message) -> Any:
    return importlib.import_module("live_record").Heard(BEGAN_S + after_s, stream, encode(message))


def recording(step_s: float = STEP_S) -> Any:
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
        steps={"node-0": steps("hot", step_s), "node-1": steps("cold", step_s)},
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
    found = importlib.import_module("fidelity").compare(recording(), recording())
    assert found["steps_s"]["live"] == pytest.approx(2 * 120 * STEP_S)
    assert found["steps_s"]["ratio"] == pytest.approx(1.0, abs=0.01)
    assert found["makespan_s"]["live"] == 1.6
    assert found["makespan_s"]["simulated"] == pytest.approx(0.1 + 3 * STEP_S, abs=0.02)
    assert found["latency_mean_s"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert found["start_difference_median_s"] == pytest.approx(0.0, abs=0.02)
    assert found["same_node"] == {"share": 1.0, "floor": 0.5}
    assert found["start_order_tau"] is None, "one request is before and behind nobody"


def test_a_round_is_predicted_with_the_costs_of_another_one_as_they_are() -> None:
    """Steps that took half as long there: queued at 0.1 s, three steps of 0.25 s, the first of which brings a token."""
    found = importlib.import_module("fidelity").compare(recording(step_s=0.25), recording())
    assert found["steps_s"] == {
        "live": pytest.approx(120.0),
        "simulated": pytest.approx(60.0, rel=0.01),
        "ratio": pytest.approx(0.5, rel=0.01),
    }
    assert found["makespan_s"] == {
        "live": 1.6,
        "simulated": pytest.approx(0.85, abs=0.02),
        "ratio": pytest.approx(0.85 / 1.6, abs=0.02),
    }
    assert found["latency_mean_s"]["live"] == 1.6
    assert found["latency_mean_s"]["ratio"] == pytest.approx(0.85 / 1.6, abs=0.02)
    assert found["start_difference_median_s"] == pytest.approx(0.6 - 0.35, abs=0.02)


def test_each_round_is_predicted_from_each_other_one_and_none_from_itself() -> None:
    compared = importlib.import_module("fidelity").compared
    found = compared({"qlm-1": recording(), "qlm-2": recording(step_s=0.25)})
    assert [(one["learnt_from"], one["replayed"]) for one in found] == [("qlm-1", "qlm-2"), ("qlm-2", "qlm-1")]
    # the second one's requests took as long as the first one's, by a clock that its steps know nothing of
    assert [one["steps_s"]["ratio"] for one in found] == pytest.approx([2.0, 0.5], rel=0.01)
    assert compared({"qlm-1": recording()}) == []


def test_a_plan_takes_as_long_as_the_one_of_most_nearly_as_many_groups() -> None:
    solve_s = importlib.import_module("fidelity")._solve_s
    loads = [GroupLoad(group=f"g{number}", model="hot", deadline_s=9.0) for number in range(8)]
    few, many = (PlacementProblem(version=1, now_s=0.0, nodes=[], groups=loads[:num]) for num in (4, 8))
    plans = [(10, 2.0), (3, 0.5)]
    assert [solve_s(plans, problem) for problem in (few, many)] == [0.5, 2.0]
    assert solve_s([], many) == SMALL_PROBLEM_S


def test_rounds_of_different_nodes_are_not_compared() -> None:
    other = recording()
    other.config = {**other.config, "nodes": [{"name": "node-0"}]}
    with pytest.raises(ValueError, match=r"rounds of different nodes: \['node-0'\] and \['node-0', 'node-1'\]"):
        importlib.import_module("fidelity").compare(other, recording())


def test_one_folder_is_not_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fidelity", "--recorded", "qlm-1"])
    with pytest.raises(SystemExit):
        importlib.import_module("fidelity").main()
    assert "name two recorded folders or more" in capsys.readouterr().err


def test_steps_before_the_trace_teach_but_are_not_compared() -> None:
    run = recording()
    run.steps["node-0"] = [*steps("hot", STEP_S), msgspec.structs.replace(steps("hot", 9.0)[0], taken_s=BEGAN_S - 1)]
    module = importlib.import_module("live_devices")
    totals = module.step_totals(run, {("cpu", "hot"): StepCost(0.2, 0.01, 0.001, 0.0001)})
    assert totals.taken_s == pytest.approx(120 * STEP_S), "the other node's model has no cost here"
    # 40 of each: 0.2 + 4 · 0.01 + 4 · 0.001 + 10 · 0.0001 = 0.245; 0.2155; 0.2166
    assert totals.predicted_s == pytest.approx(40 * (0.245 + 0.2155 + 0.2166))


# --- scores of a comparison, by hand ----------------------------------------------------------------------------------


def test_equal_nodes_may_have_changed_their_names() -> None:
    same_node = importlib.import_module("fidelity").same_node
    live = {1: "a", 2: "a", 3: "a", 4: "b"}
    assert same_node(live, {1: "a", 2: "a", 3: "b", 4: "a"}, ["a", "b"]) == {"share": 0.5, "floor": 0.5}
    assert same_node(live, {1: "b", 2: "b", 3: "b", 4: "b"}, ["a", "b"]) == {"share": 0.75, "floor": 0.5}
    assert same_node(live, {1: "b", 2: "b", 3: "b", 4: "a"}, ["a", "b"])["share"] == 1.0
    # of three nodes 1 and 2 agree where c is a, or 3 and 4 where b is a and c is b; no naming has more
    assert same_node(live, {1: "c", 2: "c", 3: "b", 4: "c"}, ["a", "b", "c"]) == {"share": 0.5, "floor": 1 / 3}
    with pytest.raises(ValueError, match="6 nodes have too many namings"):
        same_node({1: "a"}, {1: "a"}, list("abcdef"))


def test_the_order_of_starts_is_compared_pair_by_pair() -> None:
    """Of six pairs 1-2 and 3-4 are turned around: 4 agree, 2 do not, (4 - 2) / 6. A tie on either side is no pair."""
    start_order_tau = importlib.import_module("fidelity").start_order_tau
    live = {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert start_order_tau(live, live) == 1.0
    assert start_order_tau(live, {1: 2.0, 2: 1.0, 3: 4.0, 4: 3.0}) == pytest.approx(1 / 3)
    assert start_order_tau(live, {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}) == -1.0
    # 1-2 is a tie; of the five other pairs only 2-3 is turned around
    assert start_order_tau({**live, 2: 1.0}, {1: 1.0, 2: 3.5, 3: 3.0, 4: 4.0}) == pytest.approx((4 - 1) / 5)
    assert start_order_tau(live, {1: 1.0, 2: 3.0, 3: 2.0, 4: 2.0}) == pytest.approx((3 - 2) / 5), "3-4 there"
    assert start_order_tau({1: 1.0, 2: 1.0}, {1: 1.0, 2: 2.0}) is None


def test_the_batch_is_done_with_its_last_answer_whatever_is_asked_meanwhile() -> None:
    client, trace = importlib.import_module("live_client"), importlib.import_module("live_trace")
    seen = [
        client.Seen(trace.LiveRequest(number, 0.0, "hot", slo, "Hi"), sent_s=sent_s)
        for number, slo, sent_s in [(0, "batch-1", 0.5), (1, "batch-1", 2.0), (2, "interactive", 9.0)]
    ]
    assert importlib.import_module("fidelity").makespan_s(seen, {0: 4.0, 1: 1.5, 2: 7.0}) == 4.5

"""A simulated cluster whose nodes serve one phase each: the live cores hand every request over, once."""

from __future__ import annotations

from random import Random

import pytest

from services.simulator.cluster.cluster import MakeEngine, fast, stepped
from services.simulator.devices.catalogue import cluster_config, devices_of, phases_of
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.clients import SloClass
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.messages.nodes.nodes import Phases

MODEL = "mistral-7b"
REQUESTS = [WorkloadRequest(0.5 * number, MODEL, "interactive", 700 + number, 20 + number) for number in range(12)]


def simulated(
    prefill: int,
    decode: int,
    num_nodes: int = 3,
    make_engine: MakeEngine = fast,
    requests: list[WorkloadRequest] = REQUESTS,
    *,
    read_ahead: bool = True,
) -> SimulationRun:
    devices = devices_of({"a100": num_nodes}, [MODEL])
    phases = phases_of({"a100": prefill}, {"a100": decode})
    queue = QueueOptions(operations=OperationOptions(read_ahead=read_ahead))
    config = cluster_config(list(devices), [MODEL], queue, 8, phases=phases)
    return simulate(Scenario(config, devices, requests, make_engine))


def drawn(run: SimulationRun) -> list[int]:
    return [one.num_tokens for one in sorted(run.recording.outcomes, key=lambda one: one.number)]


def test_each_request_moves_once_with_its_kv_and_has_the_answer_that_it_has_elsewhere() -> None:
    parted, plain = simulated(1, 2), simulated(0, 0)
    assert drawn(parted) == drawn(plain) == [one.output_tokens for one in REQUESTS]
    moved = parted.recording.departures
    assert sorted(int(one.request_id) for one in moved) == list(range(len(REQUESTS)))
    assert all(one.is_migration and one.kv_tokens >= 700 for one in moved)
    assert {one.node for one in moved} == {"a100-0"}
    assert plain.recording.departures == []


@pytest.mark.parametrize("read_ahead", [False, True])
def test_both_engines_give_every_request_the_same_times(read_ahead: bool) -> None:
    """But for the first two, where KV is read ahead: the live engine has not learnt by then what its steps cost."""
    one, other = (
        [(out.number, out.first_token_s, out.finished_s) for out in run.recording.outcomes]
        for run in (simulated(1, 1, 2, engine, read_ahead=read_ahead) for engine in (fast, stepped))
    )
    assert [number for number, *_ in one] == [number for number, *_ in other]
    for (number, *times), (_, *others) in zip(one, other, strict=True):
        assert times == pytest.approx(others) or (read_ahead and number < 2)


def paused_s(run: SimulationRun) -> float:
    """Between the two tokens of the last request."""
    one = max(run.recording.outcomes, key=lambda one: one.number)
    assert one.finished_s is not None
    assert one.first_token_s is not None
    assert one.num_tokens == 2
    return one.finished_s - one.first_token_s


@pytest.mark.parametrize("make_engine", [fast, stepped])
def test_what_is_read_while_the_prompt_is_computed_shortens_the_pause_behind_the_first_token(
    make_engine: MakeEngine,
) -> None:
    """1,600 tokens leave 200 MiB, which take 168 ms over 10 Gbit/s, as long as the prompt; of these, 67 ms are those of
    the last step's 512 rows. Read ahead, all before these is there when they are computed, or nearly.
    """
    requests = [*REQUESTS, WorkloadRequest(30.0, MODEL, "interactive", 1600, 2)]
    plain, ahead = (simulated(1, 1, 2, make_engine, requests, read_ahead=one) for one in (False, True))
    assert drawn(plain) == drawn(ahead)
    assert paused_s(plain) > 0.168
    assert paused_s(ahead) < 0.067 + 0.02


DRAW = Random(7)
LONG = [
    WorkloadRequest(0.45 * number, MODEL, "interactive", DRAW.randint(4000, 8000), DRAW.randint(60, 140))
    for number in range(100)
]
SHORT = [
    WorkloadRequest(60.0 + 0.04 * number, MODEL, "interactive", DRAW.randint(50, 150), DRAW.randint(200, 400))
    for number in range(900)
]
TIGHT = SloClass(ttft_s=5.0, tpot_s=0.02)


def following(make_engine: MakeEngine, requests: list[WorkloadRequest], num_nodes: int = 3) -> SimulationRun:
    devices = devices_of({"a100": num_nodes}, [MODEL], max_model_lens={MODEL: 8400})
    phases = phases_of({}, {}, {"a100": num_nodes})
    config = cluster_config(list(devices), [MODEL], QueueOptions(), 64, {MODEL: 8400}, phases=phases)
    config = config.model_copy(update={"slo_classes": {"interactive": TIGHT}})
    return simulate(Scenario(config, devices, requests, make_engine))


def served(run: SimulationRun, at_s: float) -> list[Phases]:
    """By the nodes at a time, in order."""
    turned = {one.node: one.phases for one in run.recording.turns if one.time_s - run.start_s < at_s}
    return sorted(turned.get(node.node, "both") for node in run.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("make_engine", [fast, stepped])
def test_nodes_that_follow_the_load_part_the_phases_as_it_changes(make_engine: MakeEngine) -> None:
    """Long prompts hold up tokens, so two of three nodes prefill; for what comes then, one is enough."""
    run = following(make_engine, [*LONG, *SHORT])
    assert drawn(run) == [one.output_tokens for one in (*LONG, *SHORT)]
    assert served(run, 45.0) == ["decode", "prefill", "prefill"]
    assert served(run, 90.0) == ["decode", "decode", "prefill"]
    assert len(run.recording.turns) == 4, "three nodes at first, one later"


def test_a_little_load_is_not_parted() -> None:
    requests = [WorkloadRequest(2.0 * number, MODEL, "interactive", 200, 20) for number in range(30)]
    run = following(fast, requests)
    assert (run.recording.turns, run.recording.departures) == ([], [])

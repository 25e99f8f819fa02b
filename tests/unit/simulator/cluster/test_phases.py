"""A simulated cluster whose nodes serve one phase each: the live cores hand every request over, once."""

from __future__ import annotations

import pytest

from services.simulator.cluster.cluster import MakeEngine, fast, stepped
from services.simulator.devices.catalogue import cluster_config, devices_of, phases_of
from services.simulator.simulation import Scenario, SimulationRun, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.queue import OperationOptions, QueueOptions

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

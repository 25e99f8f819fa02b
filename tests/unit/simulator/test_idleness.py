"""Whether a device could take one more without breaking a promise, and what is counted where it does not."""

from __future__ import annotations

from math import inf

import pytest

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.idleness import Member, allows_one_more, cause_of, end_by_s
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, simulate
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.slo import Slo

COST = StepCost(step_s=0.5, token_s=0.25, context_token_s=0.0)


@pytest.mark.parametrize(
    ("end_by_s", "allowed"),
    [
        (21.0, True),  # 10 s + 1 s for the prompt of four + 10 tokens of 1 s: just in time
        (20.9, False),  # it would be in time, at 17.5 s, and is not with one more
        (17.4, True),  # late anyway
        (inf, True),
    ],
)
def test_one_more_is_allowed_where_it_makes_nobody_late(end_by_s: float, allowed: bool) -> None:
    """One that has 10 tokens left: steps of 0.75 s alone, of 1 s with another, whose prompt takes 1 s."""
    batch = [Member(left_tokens=10, context_tokens=100, end_by_s=end_by_s)]
    assert allows_one_more(COST, batch, 4, 10.0) == allowed


def test_contexts_slow_the_steps_down() -> None:
    """0.5 s + 0.25 s + 0.25 s for 50 tokens of context; with 50 more and another row 1.5 s, behind 0.25 s + 12.5 s."""
    cost = StepCost(step_s=0.5, token_s=0.25, context_token_s=0.005)
    assert not allows_one_more(cost, [Member(10, 50, 20.0)], 50, 0.0)
    # prompt: 50 rows of 0.25 s and 50 tokens read once: 12.75 s; then ten steps of 1.5 s
    assert allows_one_more(cost, [Member(10, 50, 27.75)], 50, 0.0)
    assert not allows_one_more(cost, [Member(10, 50, 27.7)], 50, 0.0)


@pytest.mark.parametrize(
    ("waiting_models", "has_work", "has_room", "cause"),
    [
        (["b"], False, False, "nothing_to_do"),
        (["b", "a"], True, False, "leaving_model"),
        (["a", "b"], True, False, "bounded"),
        ([], True, False, "bounded_elsewhere"),
        ([], True, True, "elsewhere"),
    ],
)
def test_why_a_device_is_unused_is_told(waiting_models: list[str], has_work: bool, has_room: bool, cause: str) -> None:
    assert cause_of("a", waiting_models, has_work=has_work, has_room=has_room) == cause


def test_when_an_answer_has_to_end() -> None:
    request = WorkloadRequest(0.0, "m", "any", prompt_tokens=5, output_tokens=11)
    outcome = ClientOutcome(0, request, sent_s=100.0)
    assert end_by_s(outcome, Slo("none")) == inf
    assert end_by_s(outcome, Slo("end", deadline_s=20.0)) == 120.0
    pace = Slo("pace", tpot_s=0.5, deadline_s=20.0)
    assert end_by_s(outcome, pace) == 120.0
    outcome.first_token_s = 101.0
    assert end_by_s(outcome, pace) == 106.0


def a_run(num_requests: int, policy: str) -> dict[str, object]:
    """Requests that all come at once, to one small batch."""
    requests = [WorkloadRequest(0.0, "mistral-7b", "batch-2", 100, 400) for _ in range(num_requests)]
    devices = devices_of({"a100": 1}, ["mistral-7b"])
    queue = QueueOptions.model_validate({"policy": policy})
    config = cluster_config(list(devices), ["mistral-7b"], queue, max_num_seqs=2)
    return report(simulate(Scenario(config, devices, requests)))


def test_a_full_batch_is_no_idle_device_whoever_waits() -> None:
    assert a_run(6, "qlm")["idle_while_waiting_share"] == 0.0


def test_the_percentiles_of_each_class_are_those_of_its_requests() -> None:
    found = a_run(2, "fcfs")
    assert list(found["ttft_by_class"]) == ["batch-2"]  # type: ignore[call-overload]
    assert found["ttft_by_class"]["batch-2"] == {  # type: ignore[index]
        "ttft_p50_s": found["ttft_p50_s"],
        "ttft_p99_s": found["ttft_p99_s"],
    }

"""What the benchmarks of benchmarks/qlm count as right: every score on a few requests that are worked out by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.recording import Prediction
from services.simulator.workloads.request import WorkloadRequest
from shared.bus import streams
from shared.messages.codec import encode
from shared.messages.message import Message
from shared.messages.nodes.placement import GroupLoad, Plan, PlanRequest, Solved
from shared.messages.requests.requests import Attempt, Evicted, EvictedRequest, Pulled, Submit
from shared.messages.requests.slo import Slo

QLM = Path(__file__).parents[2] / "benchmarks" / "qlm"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QLM)


# --- estimator_accuracy: predicted waits ------------------------------------------------------------------------------


def pair(num_waiting: int, predicted_s: float, bound_s: float, actual_s: float) -> Any:
    return importlib.import_module("estimator_accuracy").Pair(num_waiting, predicted_s, bound_s, actual_s)


def test_r_squared_compares_squared_errors_with_the_spread() -> None:
    """Waits of 1, 2, 3 and 6 s, whose mean is 3: 4 + 1 + 0 + 9 = 14. Errors of 1, 0, -1 and 2 s: 6. 1 - 6 / 14."""
    r_squared = importlib.import_module("estimator_accuracy").r_squared
    pairs = [pair(0, 2.0, 0, 1.0), pair(0, 2.0, 0, 2.0), pair(0, 2.0, 0, 3.0), pair(0, 8.0, 0, 6.0)]
    assert r_squared(pairs) == pytest.approx(1 - 6 / 14)
    assert r_squared([pair(0, 3.0, 0, wait_s) for wait_s in (1.0, 2.0, 3.0, 6.0)]) == 0.0, "the mean explains nothing"


def test_a_summary_tells_queues_apart_by_their_length() -> None:
    """Waits of 2 and 4 s behind few, of 10, 20 and 30 s behind more than a hundred; a wait at its bound is within."""
    pairs = [
        pair(0, 1.0, 2.0, 2.0),
        pair(9, 6.0, 3.5, 4.0),
        pair(100, 9.0, 9.0, 10.0),
        pair(101, 12.0, 10.0, 10.0),
        pair(300, 18.0, 24.0, 20.0),
        pair(1_500, 36.0, 29.0, 30.0),
    ]
    # all: mean 76 / 6; Σ a² - 76² / 6 = 1,520 - 962.67 = 557.33; errors 1, 2, 1, 2, 2, 6: 1 + 4 + 1 + 4 + 4 + 36 = 50
    # over 100: 10, 20, 30: 200; 4 + 4 + 36 = 44
    assert importlib.import_module("estimator_accuracy").summary(pairs) == {
        "num_predictions": 6,
        "r2": pytest.approx(1 - 50 / 557.3333, abs=1e-4),
        "r2_long_queues": 0.78,
        "coverage_p90": 0.5,
        "buckets": [
            {"from": 0, "num_predictions": 1, "mean_wait_s": 2.0, "median_ratio": 0.5, "coverage_p90": 1.0},
            {"from": 1, "num_predictions": 1, "mean_wait_s": 4.0, "median_ratio": 1.5, "coverage_p90": 0.0},
            {"from": 10, "num_predictions": 0},
            # ratios of .9 and 1.2
            {"from": 100, "num_predictions": 2, "mean_wait_s": 10.0, "median_ratio": 1.05, "coverage_p90": 0.5},
            {"from": 300, "num_predictions": 1, "mean_wait_s": 20.0, "median_ratio": 0.9, "coverage_p90": 1.0},
            {"from": 1_000, "num_predictions": 1, "mean_wait_s": 30.0, "median_ratio": 1.2, "coverage_p90": 0.0},
        ],
    }


def test_one_wait_behind_a_long_queue_has_no_spread() -> None:
    summary = importlib.import_module("estimator_accuracy").summary
    assert summary([pair(0, 1, 1, 1.0), pair(500, 3, 3, 4.0)])["r2_long_queues"] is None
    # two of 4 and 8 s have 8; errors of 1 and 0
    assert summary([pair(500, 3, 3, 4.0), pair(101, 8, 3, 8.0)])["r2_long_queues"] == 1 - 1 / 8


def test_a_run_ends_when_all_who_are_judged_have_a_token_or_are_over() -> None:
    """Numbers 1 and 2 are judged: neither the end of their answers nor anybody else is waited for."""
    module = importlib.import_module("estimator_accuracy")
    first, one, two = (
        ClientOutcome(number, WorkloadRequest(0.0, "m", "batch-2", 10, 10), 0.0, reason="") for number in range(3)
    )

    class Run:
        def __init__(self) -> None:
            self.outcomes = [first]
            self.has_ended: list[bool] = []

        def run_until(self, has_ended: Any) -> None:
            def look() -> None:
                self.has_ended.append(has_ended())

            look()
            self.outcomes += [one, two]
            look()
            two.first_token_s = 3.0
            look()
            one.reason = "rejected"
            look()

    run = Run()
    module.run_until_started(run, range(1, 3))
    assert run.has_ended == [False, False, False, True]


def test_a_request_is_judged_behind_the_calm_part_with_those_who_wait_when_it_comes() -> None:
    """One a second: the calm thousand have all started but the last two; then three come, of whom two are judged."""
    module = importlib.import_module("estimator_accuracy")
    calm = module.CALM_REQUESTS

    def outcome(number: int, started_after_s: float | None, first_token_after_s: float | None) -> ClientOutcome:
        sent_s = float(number)
        return ClientOutcome(
            number,
            WorkloadRequest(sent_s, "m", "batch-2", 10, 10),
            sent_s,
            started_s=None if started_after_s is None else sent_s + started_after_s,
            first_token_s=None if first_token_after_s is None else sent_s + first_token_after_s,
        )

    outcomes = [outcome(number, 0.0, 0.5) for number in range(calm - 2)]
    outcomes += [outcome(number, 100.0, 101.0) for number in range(calm - 2, calm)]
    outcomes += [outcome(calm, 10.0, 12.0), outcome(calm + 1, None, None), outcome(calm + 2, 20.0, 21.5)]
    outcomes += [outcome(calm + 3, 0.0, 0.25)]
    predictions = [Prediction(one.number, 7.0, 9.0) for one in outcomes[calm - 1 :]]
    found = module.paired(predictions, outcomes, range(calm, calm + 3))
    # the first finds the two of the calm part, the third these two and the two before it; the second got no token
    assert found == [pair(2, 7.0, 9.0, 12.0), pair(4, 7.0, 9.0, 21.5)]


# --- live: what clients saw -------------------------------------------------------------------------------------------


def seen(number: int, slo: str, sent_s: float, first_token_s: float, finished_s: float, output_tokens: int) -> Any:
    client, trace = importlib.import_module("live_client"), importlib.import_module("live_trace")
    request = trace.LiveRequest(number, sent_s, "hot", slo, "Hi")
    return client.Seen(request, f"r-{number}", sent_s, first_token_s, finished_s, 4, output_tokens)


def told(one: Any, *places: tuple[float, int, float | None]) -> Any:
    """When, behind how many, how long until the first token."""
    place = importlib.import_module("live_client").Place
    one.places = [place(told_s, num_ahead, wait_s, None) for told_s, num_ahead, wait_s in places]
    return one


def recorded(requests: list[Any], **heard: Any) -> Any:
    client = importlib.import_module("live_client")
    config = importlib.import_module("live_cluster").two_nodes("qlm")
    return importlib.import_module("live_record").Recording(config, trace=client.Played(1_000.0, requests), **heard)


def test_what_the_clients_of_a_run_saw() -> None:
    """Interactive answers are due within 8 s, those of the batch within 90 s."""
    refused = seen(4, "interactive", 3.0, 0.0, 0.0, 0)
    refused.refused, refused.first_token_s, refused.finished_s = "429: too late", None, None
    found = importlib.import_module("live").summary(
        recorded(
            [
                told(seen(0, "batch-1", 0.0, 10.0, 20.0, 50), (1.0, 31, 12.0), (2.0, 30, 99.0), (5.0, 40, None)),
                told(seen(1, "batch-1", 0.5, 41.0, 91.0, 100), (1.0, 50, 30.0), (31.0, 31, 16.0)),
                seen(2, "interactive", 1.0, 2.0, 9.0, 30),  # after 8 s: in time
                seen(3, "interactive", 2.0, 4.0, 10.5, 20),  # after 8.5 s
                refused,
                seen(5, "interactive", 95.0, 96.0, 105.0, 10),  # after 10 s
            ]
        )
    )
    assert found == {
        "slo_attainment": {"all": 2 / 6, "batch-1": 1 / 2, "interactive": 1 / 4},
        "num_interactive": 4,
        "makespan_s": 91.0,  # the last answer of the batch, not the last of all
        "output_tok_s": 2.0,  # 210 tokens in 105 s
        "latency_mean_s": {"batch-1": (20.0 + 90.5) / 2, "interactive": (8.0 + 8.5 + 10.0) / 3},
        "refused": ["429: too late"],
        "evicted": 0,
        # behind more than 30: 12 for 9 s, 30 for 40 s, 16 for 10 s. Off by 1/3, 1/4 and 3/5; +3, -10 and +6 s
        "num_predictions": 3,
        "start_error_median": pytest.approx(1 / 3),
        "start_error_median_s": 3.0,
    }


def test_where_nobody_was_told_of_a_long_queue_there_is_no_error() -> None:
    both = [seen(0, "batch-1", 0.0, 1.0, 2.0, 5), seen(1, "interactive", 0.0, 1.0, 2.0, 5)]
    found = importlib.import_module("live").summary(recorded(both))
    assert (found["num_predictions"], found["start_error_median"], found["start_error_median_s"]) == (0, None, None)


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo("any", ttft_s=2.0, tpot_s=0.5, deadline_s=6.0), True),
        (Slo("any", ttft_s=1.9), False),
        (Slo("any", tpot_s=0.49), False),
        (Slo("any", deadline_s=5.9), False),
    ],
)
def test_a_live_promise_is_judged_by_first_token_pace_and_end(slo: Slo, kept: bool) -> None:
    """Sent at 1 s, first token at 3 s, nine tokens by 7 s: 2 s, 4 s for eight more, 6 s."""
    assert importlib.import_module("live").is_kept(seen(0, "any", 1.0, 3.0, 7.0, 9), slo) is kept


def test_one_without_a_token_is_not_kept() -> None:
    silent = seen(0, "any", 1.0, 3.0, 7.0, 9)
    silent.first_token_s = None
    assert not importlib.import_module("live").is_kept(silent, Slo("any"))


# --- live_record: what is taken from the messages ---------------------------------------------------------------------


def heard(after_s: float, message: Message) -> Any:
    return importlib.import_module("live_record").Heard(1_000.0 + after_s, streams.QUEUE, encode(message))


def pulled(node: str, *names: str) -> Pulled:
    return Pulled(node=node, epoch="e", group="g", requests=[Attempt(name, 0) for name in names])


def evicted(*names: str) -> Evicted:
    return Evicted(node="node-0", epoch="e", requests=[EvictedRequest(name, 0, 1, 5, "node-0") for name in names])


def submit(name: str, attempt: int = 0) -> Submit:
    return Submit(
        request_id=name,
        attempt=attempt,
        gateway="g",
        model="hot",
        slo=Slo("batch-1", deadline_s=90),
        prompt_tokens=4,
        max_tokens=9,
    )


def question(version: int, num_groups: int) -> PlanRequest:
    loads = [GroupLoad(group=f"g{number}", model="hot", deadline_s=9.0) for number in range(num_groups)]
    return PlanRequest(version=version, groups=loads)


def solved(version: int) -> Solved:
    return Solved(plan=Plan(version=version, queues={}))


def test_messages_of_the_warm_up_do_not_count() -> None:
    run = recorded(
        [],
        heard=[
            heard(-1.0, submit("w")),
            heard(-0.5, pulled("node-1", "w")),
            heard(-0.25, evicted("w")),
            heard(0.0, pulled("node-0", "w", "r")),
            heard(1.0, evicted("w", "r")),
            heard(2.0, evicted("r")),
            heard(3.0, pulled("node-1", "r")),
        ],
    )
    assert [(start.time_s - 1_000.0, start.node, start.request_id) for start in run.starts] == [
        (0.0, "node-0", "w"),
        (0.0, "node-0", "r"),
        (3.0, "node-1", "r"),
    ]
    assert run.num_evicted == 3


def test_a_request_is_queued_when_it_comes_first() -> None:
    run = recorded([], heard=[heard(-1.0, submit("w")), heard(2.0, submit("r")), heard(5.0, submit("r", attempt=1))])
    assert run.queued_s == {"w": 999.0, "r": 1_002.0}


def test_a_plan_takes_from_its_question_to_its_answer() -> None:
    """Each question is answered once; what was asked before the trace, or is never answered, is none of it."""
    run = recorded(
        [],
        heard=[
            heard(-1.0, question(1, 7)),
            heard(0.5, question(2, 3)),
            heard(0.75, solved(1)),
            heard(1.0, question(3, 5)),
            heard(2.0, solved(3)),
            heard(2.5, solved(2)),
            heard(2.75, solved(2)),
            heard(3.0, question(4, 9)),
        ],
    )
    assert run.plans == [(5, 1.0), (3, 2.0)]

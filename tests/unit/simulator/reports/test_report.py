"""A run written down by hand, and what it comes to: every figure of a report is worked out here."""

from __future__ import annotations

import math

import pytest

from gpu_node.engine.measures.counts import Counts, KeptCounts
from services.simulator.cluster.clients import UNSERVED, ClientOutcome
from services.simulator.cluster.engine_process import Loading
from services.simulator.cluster.node_prefixes import PrefixCounts
from services.simulator.recording import Departure, Prediction, Recording
from services.simulator.reports.report import attainment, keeps, quantiles, report, rounded
from services.simulator.simulation import NodeLife, Scenario, SimulationRun
from services.simulator.workloads.request import WorkloadRequest
from shared.config.config import ClusterConfig
from shared.config.services.clients import SloClass
from shared.messages.requests.slo import Slo

START_S, END_S = 100.0, 120.0
CONFIG = ClusterConfig(
    slo_classes=ClusterConfig().slo_classes
    | {
        "tight": SloClass(ttft_s=1.0, tpot_s=0.1, deadline_s=5.0),
        "loose": SloClass(deadline_s=30.0),
    },
)

NO_PREFIXES = PrefixCounts()


def outcome(
    number: int,
    slo: str,
    model: str,
    sent_s: float,
    *,
    started_s: float | None = None,
    first_token_s: float | None = None,
    finished_s: float | None = None,
    num_tokens: int = 0,
    reason: str = "stop",
) -> ClientOutcome:
    """Times but the first count from when it was sent."""

    def on_the_clock(after_s: float | None) -> float | None:
        return None if after_s is None else sent_s + after_s

    return ClientOutcome(
        number,
        WorkloadRequest(sent_s - START_S, model, slo, 10, max(1, num_tokens)),
        sent_s,
        num_tokens=num_tokens,
        started_s=on_the_clock(started_s),
        first_token_s=on_the_clock(first_token_s),
        finished_s=on_the_clock(finished_s),
        reason=reason,
    )


KEPT = outcome(0, "tight", "m", 100.0, started_s=0.25, first_token_s=1.0, finished_s=2.0, num_tokens=11)
LATE_START = outcome(1, "tight", "m", 101.0, started_s=0.5, first_token_s=1.5, finished_s=2.0, num_tokens=11)
SLOW_TOKENS = outcome(2, "tight", "k", 102.0, started_s=0.5, first_token_s=0.5, finished_s=1.5, num_tokens=5)
LONG_WAIT = outcome(3, "loose", "k", 103.0, started_s=4.0, first_token_s=5.0, finished_s=16.0, num_tokens=3)
REJECTED = outcome(4, "loose", "m", 104.0, finished_s=0.5, reason="rejected")
NEVER_SERVED = outcome(5, "loose", "k", 105.0, reason=UNSERVED)
LATE_END = outcome(6, "tight", "m", 110.0, started_s=0.0, first_token_s=0.5, finished_s=5.5, num_tokens=101)
FAILED = outcome(
    7, "loose", "m", 112.0, started_s=0.0, first_token_s=0.75, finished_s=1.0, num_tokens=2, reason="error"
)
ONE_TOKEN = outcome(8, "loose", "k", 114.0, started_s=0.0, first_token_s=1.0, finished_s=1.0, num_tokens=1)
OUTCOMES = [ONE_TOKEN, KEPT, LATE_START, SLOW_TOKENS, LONG_WAIT, REJECTED, NEVER_SERVED, LATE_END, FAILED]
"""In the order in which they were over, as a recording has them."""


def load(model: str) -> Loading:
    return Loading(101.0, 103.0, model, "disk")


PREEMPTED = Counts(num_preemptions=1)
FOUND = Counts(first_queried_tokens=200, first_cached_tokens=120, kept=KeptCounts(host_tokens=40, store_tokens=20))

RUN = SimulationRun(
    scenario=Scenario(CONFIG, {}, []),
    recording=Recording(
        predictions=[Prediction(0, wait_s=2.0, wait_p90_s=2.5), Prediction(1, wait_s=1.0, wait_p90_s=1.25)],
        outcomes=OUTCOMES,
        departures=[
            Departure(105.0, "n0", "3", kv_tokens=10, is_migration=False),
            Departure(106.0, "n0", "3", kv_tokens=0, is_migration=False),
            Departure(107.0, "n1", "3", kv_tokens=5, is_migration=True),
        ],
    ),
    nodes=[
        NodeLife(
            "n0",
            "a100",
            busy_s=15.0,
            counts=Counts(num_preemptions=2),
            loadings=[load("m"), load("k")],
            prefixes=NO_PREFIXES,
        ),
        NodeLife("n1", "a100", 5.0, PREEMPTED + FOUND, [], NO_PREFIXES),
        NodeLife("n2", "a10", busy_s=4.0, counts=Counts(num_preemptions=0), loadings=[load("k")], prefixes=NO_PREFIXES),
    ],
    leases=[],
    start_s=START_S,
    end_s=END_S,
    num_plans=7,
    idle_while_waiting={"bounded": 0.1, "elsewhere": 0.025},
)


def test_a_run_of_nine_requests() -> None:
    assert report(RUN) == {
        "num_requests": 9,
        "num_answered": 6,
        "num_rejected": 1,
        "num_unserved": 1,
        "slo_attainment": 0.3333,  # KEPT, LONG_WAIT and ONE_TOKEN of nine
        "slo_attainment_by_class": {"loose": 0.4, "tight": 0.25},  # two of five, one of four
        "slo_attainment_by_model": {"k": 0.5, "m": 0.2},  # two of four, one of five
        "started_in_time": 0.6667,  # all but LATE_START, REJECTED and NEVER_SERVED
        "throughput_rps": 0.3,  # 6 answers in 20 s
        "output_tok_s": 6.7,  # 11 + 11 + 5 + 3 + 101 + 2 + 1 = 134, those of FAILED among them
        "makespan_s": 20.0,
        # of seven that a node took: 0, 0, 0, .25, .5, .5, 4. 99 % of the way is 5.94 of 6 steps: .5 + .94 · 3.5
        "wait_p50_s": 0.25,
        "wait_p99_s": 3.79,
        # .5, .5, .75, 1, 1, 1.5, 5: 1.5 + .94 · 3.5
        "ttft_p50_s": 1.0,
        "ttft_p99_s": 4.79,
        "ttft_by_class": {
            "loose": {"ttft_p50_s": 1.0, "ttft_p99_s": 4.92},  # .75, 1, 5: 1 + .98 · 4
            "tight": {"ttft_p50_s": 0.75, "ttft_p99_s": 1.485},  # .5, .5, 1, 1.5: 1 + .97 · .5
        },
        # of six answers: 1, 1.5, 2, 2, 5.5, 16. 4.95 of 5 steps: 5.5 + .95 · 10.5
        "e2e_p50_s": 2.0,
        "e2e_p99_s": 15.475,
        "model_swaps": 3,
        "evictions": 2,
        "evictions_without_kv": 1,
        "migrations": 1,
        "preemptions": 3,
        "prompt_tokens_found": {"all": 0.6, "device": 0.3, "host": 0.2, "ssd": 0.1},  # of 200
        "num_plans": 7,
        "node_hours": 0.0167,  # three nodes for 20 s are a minute
        "idle_while_waiting_share": 0.125,
        "idle_while_waiting_by_cause": {"bounded": 0.1, "elsewhere": 0.025},
        "device_utilisation": 0.4,  # (15 + 5 + 4) / 3 of 20 s
        "device_utilisation_by_kind": {"a10": 0.2, "a100": 0.5},
        "estimator_r2": None,
        "estimator_mean_error_s": None,
        "num_predictions_behind_long_queues": 0,
        "estimator_p90_coverage": 0.5,  # KEPT came at 1.0 s of 2.5, LATE_START at 1.5 s of 1.25
        "num_predictions": 2,
    }


def test_a_share_is_of_all_requests_that_are_asked_about() -> None:
    assert attainment([KEPT, LATE_START, LONG_WAIT, NEVER_SERVED], CONFIG) == 0.5


# --- one promise ------------------------------------------------------------------------------------------------------

ANSWER = outcome(0, "any", "m", 50.0, first_token_s=2.0, finished_s=10.0, num_tokens=5)
"""First token after 2 s, the last after 10 s, and four after the first one: 2 s each."""


@pytest.mark.parametrize(
    ("slo", "is_kept"),
    [
        (Slo("any"), True),
        (Slo("any", ttft_s=2.0), True),
        (Slo("any", ttft_s=1.99), False),
        (Slo("any", tpot_s=2.0), True),
        (Slo("any", tpot_s=1.99), False),
        (Slo("any", deadline_s=10.0), True),
        (Slo("any", deadline_s=9.99), False),
        (Slo("any", ttft_s=2.0, tpot_s=2.0, deadline_s=10.0), True),
        (Slo("any", ttft_s=2.0, tpot_s=2.0, deadline_s=9.99), False),
        (Slo("any", ttft_s=2.0, tpot_s=1.99, deadline_s=10.0), False),
        (Slo("any", ttft_s=1.99, tpot_s=2.0, deadline_s=10.0), False),
    ],
)
def test_each_part_of_a_promise_is_judged_by_itself_and_to_the_point(slo: Slo, is_kept: bool) -> None:
    assert keeps(ANSWER, slo) is is_kept


def test_an_answer_of_one_token_has_no_time_of_a_further_one() -> None:
    assert keeps(ONE_TOKEN, Slo("any", tpot_s=0.001))
    two = outcome(0, "any", "m", 50.0, first_token_s=2.0, finished_s=3.0, num_tokens=2)
    assert not keeps(two, Slo("any", tpot_s=0.999))


@pytest.mark.parametrize("lost", [REJECTED, NEVER_SERVED, FAILED])
def test_without_an_answer_nothing_is_kept(lost: ClientOutcome) -> None:
    assert not keeps(lost, Slo("any"))


# --- figures ----------------------------------------------------------------------------------------------------------


def test_quantiles_lie_straight_between_neighbours() -> None:
    # of 1 … 5: the middle one, and .99 · 4 = 3.96 steps from the first
    assert quantiles("x", [5.0, 1.0, 4.0, 2.0, 3.0]) == pytest.approx({"x_p50_s": 3.0, "x_p99_s": 4.96})
    assert quantiles("x", [1.0, 2.0]) == pytest.approx({"x_p50_s": 1.5, "x_p99_s": 1.99})
    assert quantiles("x", [7.0]) == {"x_p50_s": 7.0, "x_p99_s": 7.0}
    assert quantiles("x", []) == {"x_p50_s": None, "x_p99_s": None}


def test_numbers_are_rounded_wherever_they_are_and_what_is_no_number_stays() -> None:
    found = rounded({"a": 0.123456, "b": {"c": 2.00004}, "d": math.inf, "e": 3, "f": None, "g": math.nan})
    assert found == {"a": 0.1235, "b": {"c": 2.0}, "d": None, "e": 3, "f": None, "g": None}

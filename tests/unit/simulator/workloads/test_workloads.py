"""Workloads: deterministic by seed, with the lengths, classes and arrivals that were asked for."""

from __future__ import annotations

import itertools
import statistics
from random import Random

import pytest

from services.simulator.workloads.arrivals import WeightedNames, poisson
from services.simulator.workloads.lengths import MAX_TOTAL_TOKENS, draw_answer, draw_mega, draw_sharegpt
from services.simulator.workloads.paper import MEGA_SHARE, WORKLOADS
from services.simulator.workloads.request import DEFAULT_LIMIT_TOKENS, WorkloadError, WorkloadRequest
from services.simulator.workloads.trace import Trace
from shared.files.length_trace import TraceLine

ALL = WeightedNames({"interactive": 1})


def test_drawn_lengths_have_the_quartiles_of_sharegpt() -> None:
    """Of its 58,338 conversations: prompts 15, 35, 151 tokens; answers 130, 280, 444."""
    random = Random(0)
    drawn = [draw_sharegpt(random) for _ in range(20_000)]
    prompts = statistics.quantiles((prompt for prompt, _ in drawn), n=4)
    answers = statistics.quantiles((answer for _, answer in drawn), n=4)
    assert prompts == pytest.approx([15, 35, 151], rel=0.08)
    assert answers == pytest.approx([130, 280, 444], rel=0.08)
    assert max(prompt + answer for prompt, answer in drawn) <= MAX_TOTAL_TOKENS


def test_answers_are_cut_at_what_clients_allow_so_that_a_limit_tells_nothing_of_a_length() -> None:
    random = Random(0)
    answers = [answer for _, answer in (draw_sharegpt(random) for _ in range(20_000))]
    assert max(answers) == DEFAULT_LIMIT_TOKENS
    assert 0.005 < answers.count(DEFAULT_LIMIT_TOKENS) / len(answers) < 0.03
    assert {WorkloadRequest(0.0, "m", "s", 5, answer).max_tokens for answer in answers} == {DEFAULT_LIMIT_TOKENS}


def test_an_answer_is_drawn_given_its_prompt_and_how_far_it_has_come() -> None:
    random = Random(5)
    fresh = [draw_answer(random, prompt_tokens=100) for _ in range(20_000)]
    late = [draw_answer(random, 100, least_tokens=301) for _ in range(20_000)]
    assert min(late) >= 301
    assert statistics.mean(late) == pytest.approx(statistics.mean(one for one in fresh if one > 300), rel=0.02)
    assert {draw_answer(random, MAX_TOTAL_TOKENS - 4, least_tokens=4) for _ in range(5)} == {4}
    assert draw_answer(random, 100, DEFAULT_LIMIT_TOKENS) == DEFAULT_LIMIT_TOKENS


def test_mega_prompts_have_thousands_of_tokens() -> None:
    random = Random(0)
    drawn = [draw_mega(random) for _ in range(100)]
    assert all(2_500 <= prompt <= 3_900 and prompt + answer <= MAX_TOTAL_TOKENS for prompt, answer in drawn)


def test_arrivals_are_poisson() -> None:
    times = poisson(4.0, 20_000, Random(0))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 4, rel=0.02)
    assert statistics.stdev(gaps) == pytest.approx(1 / 4, rel=0.02), "exponential: as much spread as mean"


def test_the_papers_workloads() -> None:
    kinds = {name: {(one.model, one.slo) for one in draw(name)} for name in WORKLOADS}
    classes = ["interactive", "batch-1", "batch-2"]
    assert kinds["wa"] == kinds["wc"] == {("mistral-7b", name) for name in classes}
    assert kinds["wb"] == {
        (model, name) for model in ("mistral-7b", "vicuna-13b", "llama-70b") for name in ("batch-1", "batch-2")
    }
    num_mega = sum(request.prompt_tokens >= 2_500 for request in draw("wc"))
    num_long = sum(request.prompt_tokens >= 2_500 for request in draw("wa"))
    assert (num_mega - num_long) / 2_000 == pytest.approx(MEGA_SHARE, rel=0.25)


def draw(name: str, seed: int = 1) -> list[WorkloadRequest]:
    return WORKLOADS[name].draw(10.0, 2_000, Random(seed))


def test_the_seed_decides() -> None:
    assert draw("wb") == draw("wb")
    assert draw("wb", seed=2) != draw("wb")


def test_a_mix_is_drawn_by_its_weights() -> None:
    mix, random = WeightedNames({"a": 3, "b": 1, "c": 0}), Random(0)
    drawn = [mix.draw(random) for _ in range(4_000)]
    assert drawn.count("a") / 4_000 == pytest.approx(0.75, abs=0.03)
    assert "c" not in drawn
    with pytest.raises(WorkloadError, match="one above 0"):
        WeightedNames({"a": 0})


def test_clients_allow_the_usual_limit_or_what_the_trace_needs() -> None:
    assert WorkloadRequest(0.0, "m", "s", 5, output_tokens=7).max_tokens == DEFAULT_LIMIT_TOKENS
    assert WorkloadRequest(0.0, "m", "s", 5, output_tokens=3_000).max_tokens == 3_000


def test_a_trace_keeps_its_bursts_at_another_rate() -> None:
    lines = TraceLine(10, 3, 5.0, "x", "1"), TraceLine(20, 4, 7.0, "y", "2"), TraceLine(30, 5, 11.0, "y", "1")
    trace = Trace("trace.csv", lines)
    assert trace.models == ["y", "x"]
    assert trace.rate_per_s() == 2 / 6
    mapping = {"x": "mistral-7b", "y": "llama-70b"}
    requests = trace.requests(3, Random(0), slos=ALL, models=mapping, rate_per_s=2 / 3)
    assert requests == [
        WorkloadRequest(0.0, "mistral-7b", "interactive", 10, 3, "1"),
        WorkloadRequest(1.0, "llama-70b", "interactive", 20, 4, "2"),
        WorkloadRequest(3.0, "llama-70b", "interactive", 30, 5, "1"),
    ]
    later = trace.requests(1, Random(0), slos=ALL, models=mapping, rate_per_s=None, first=1)
    assert [request.prompt_tokens for request in later] == [20]
    assert later[0].arrival_s == 0.0


def test_a_trace_without_arrivals_is_sampled() -> None:
    trace = Trace("lengths.csv", tuple(TraceLine(*lengths, None, "", "") for lengths in ((4, 5), (6, 7))))
    assert not trace.has_arrivals
    requests = trace.requests(50, Random(0), slos=ALL, models={"": "m"}, rate_per_s=1.0)
    assert {(one.prompt_tokens, one.output_tokens, one.tenant) for one in requests} == {
        (4, 5, "default"),
        (6, 7, "default"),
    }
    with pytest.raises(WorkloadError, match="a rate is needed"):
        trace.requests(1, Random(0), slos=ALL, models={"": "m"}, rate_per_s=None)

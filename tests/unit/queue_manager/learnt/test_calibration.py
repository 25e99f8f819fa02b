"""A full batch as it is observed, against what the model makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest

from services.queue_manager.learnt.calibration import MAX_FITS, MEMORY_S, MOST_RATIO, PRIOR_S, Calibration, Fit
from services.queue_manager.learnt.weights_at import WeightsAt
from shared.estimator.batching import batching
from shared.estimator.estimator import drain_s
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ModelRate, StepCost

LOAD = GroupLoad(group="", model="a", deadline_s=0.0, num_waiting=8, mean_output_tokens=100.0)


def node(name: str = "n0", *, device: str = "gpu") -> NodeState:
    """Room for (865 - 50) / (50 + 15) requests like these, which is 12.5; a step takes 1/20 s."""
    rate = ModelRate("a", StepCost(0.05, 0.0, 0.0), kv_tokens=865, kv_token_bytes=1, load_s=0.0)
    return NodeState(node=name, model="a", device=device, max_num_seqs=64, rates=[rate])


def test_nothing_is_corrected_before_anything_was_observed() -> None:
    assert batching(node(), LOAD).batch == pytest.approx(815 / 65)
    assert Calibration({}).expected(node()) == node()


def test_what_was_observed_moves_the_prior_as_long_as_it_lasted() -> None:
    fits: dict[WeightsAt, Fit] = {}
    modelled = 815 / 65
    Calibration(fits).observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    kept = math.exp(-5.0 / MEMORY_S) * PRIOR_S
    fit = fits[WeightsAt("a", "gpu")]
    assert fit.places_ratio == pytest.approx((kept * modelled + 5 * 8) / ((kept + 5) * modelled))
    # a batch as modelled brings 20 tokens a second each; in 5 s there were 640
    assert fit.seconds_ratio == pytest.approx((kept + 5) * 20 * modelled / (kept * 20 * modelled + 640))


def test_in_the_end_the_model_says_what_is_observed() -> None:
    """8 run, and draw 640 tokens in 5 s: Θ = 128 tokens a second, instead of 12.5 x 20."""
    calibration = Calibration({})
    for _ in range(400):
        calibration.observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    work = batching(calibration.expected(node()), LOAD)
    assert work.tokens_per_s == pytest.approx(128, rel=1e-3)
    # the KV that 8 of 12.5 take of 865 tokens, less what the next one leaves unused
    assert work.batch == pytest.approx((865 * 8 / (815 / 65) - 50) / 65, rel=0.01)


def test_many_short_and_few_long_requests_fill_the_same_memory() -> None:
    """Batches as modelled, in turns: 12 of 65 tokens, or 5 of 150. By means of numbers the ratio would be 1.2."""
    fits: dict[WeightsAt, Fit] = {}
    long = msgspec.structs.replace(LOAD, mean_prompt_tokens=85.0)
    for number in range(400):
        load = (LOAD, long)[number % 2]
        Calibration(fits).observe(node(), load, (12, 5)[number % 2], num_tokens=1000.0, seconds=5.0)
    assert fits[WeightsAt("a", "gpu")].places_ratio == pytest.approx((12 * 65 + 5 * 150) / (815 + 772.5), rel=0.01)


def test_what_is_seen_of_a_device_holds_for_others_of_its_kind() -> None:
    calibration = Calibration({})
    calibration.observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    assert calibration.expected(node("n1")).rates == calibration.expected(node()).rates != node().rates
    assert calibration.expected(node("n1", device="other")) == node("n1", device="other")


def test_one_model_is_expected_as_among_all() -> None:
    calibration = Calibration({})
    calibration.observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    [rate] = node().rates
    several = msgspec.structs.replace(node(), rates=[replace(rate, model="b"), rate])
    [_, expected] = calibration.expected(several).rates
    assert expected != rate
    assert calibration.expected_of(several, "a").rates == [expected]
    assert calibration.expected_of(several, "unknown") == calibration.expected(several), "it is guessed from them"


def test_a_group_drains_in_the_same_time_whether_one_model_of_the_node_is_looked_at_or_all() -> None:
    calibration = Calibration({})
    calibration.observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    for model in (LOAD.model, "unknown"):
        load = msgspec.structs.replace(LOAD, model=model)
        assert drain_s(calibration.expected_of(node(), model), load) == drain_s(calibration.expected(node()), load)


def test_what_is_expected_is_kept_until_a_fit_changes_or_the_node_is_known_better() -> None:
    calibration = Calibration({})
    known = node()
    assert calibration.expected_of(known, "a") is calibration.expected_of(known, "a")
    calibration.observe(known, LOAD, 8, num_tokens=640.0, seconds=5.0)
    assert calibration.expected_of(known, "a") == calibration.expected(known) != known
    better = msgspec.structs.replace(known, max_num_seqs=32)
    assert calibration.expected_of(better, "a") == calibration.expected(better)
    assert calibration.expected_of(better, "b") == calibration.expected(better), "of each model by itself"
    for number in range(MAX_FITS + 1):
        calibration.expected_of(node(f"n{number}"), "a")
    assert len(calibration._expected) <= MAX_FITS


def test_corrections_are_bounded() -> None:
    fits: dict[WeightsAt, Fit] = {}
    for _ in range(400):
        Calibration(fits).observe(node(), LOAD, 1000, num_tokens=5.0, seconds=5.0)
    fit = fits[WeightsAt("a", "gpu")]
    assert (fit.places_ratio, fit.seconds_ratio) == (
        MOST_RATIO,
        MOST_RATIO,
    )


def test_the_oldest_are_forgotten() -> None:
    fits: dict[WeightsAt, Fit] = {}
    for number in range(MAX_FITS + 1):
        Calibration(fits).observe(node(device=f"d{number}"), LOAD, 8, num_tokens=128.0, seconds=1.0)
    assert len(fits) == MAX_FITS
    assert WeightsAt("a", "d0") not in fits


def test_left_out_it_corrects_nothing() -> None:
    fits: dict[WeightsAt, Fit] = {}
    Calibration(fits).observe(node(), LOAD, 8, num_tokens=640.0, seconds=5.0)
    left_out = Calibration(fits, is_on=False)
    assert left_out.expected(node()) == left_out.expected_of(node(), "a") == node()

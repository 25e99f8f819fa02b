"""The short form: every target, some inputs from a fixed seed, and every input that ever broke a rule."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz import corpus
from tests.fuzz.bounds import bounded
from tests.fuzz.campaign import inputs, run
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

SEED = 17
NUM_SLOWEST = 150
"""Inputs of the slowest targets, which take milliseconds each; those of others are as many as their share says."""
MAX_INPUTS = 4000

CASES = [(name, digest, data) for name, target in TARGETS.items() for digest, data in corpus.kept(target)]


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_rule(name: str) -> None:
    target = TARGETS[name]
    for example in target.examples():  # what is made once is made before memory is bounded
        target.check(example)
    num_inputs = min(max(int(target.share * 100), NUM_SLOWEST), MAX_INPUTS)
    with bounded():
        tally = run(target, islice(inputs(target, SEED), num_inputs))
    assert [(finding.error, finding.place, finding.data) for finding in tally.findings.values()] == []
    assert tally.num_decoded > 0, "the good path is among them"


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, _, data in CASES], ids=[case[1] for case in CASES])
def test_what_once_broke_a_rule_does_so_no_more(name: str, data: bytes) -> None:
    with bounded():
        tally = run(TARGETS[name], [data])
    assert [(finding.error, finding.place) for finding in tally.findings.values()] == []


def test_inputs_follow_from_the_seed() -> None:
    target = TARGETS["messages"]
    first, again, other = (list(islice(inputs(target, seed), 300)) for seed in (1, 1, 2))
    assert first == again
    assert first != other

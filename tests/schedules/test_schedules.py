"""The composed cores keep their promises in 10,000 schedules of faults. A failure names its seed: replay it with
`python -m tests.schedules --replay SEED`, which tells what happened.
"""

from __future__ import annotations

import pytest

from tests.schedules.tally import tally

NUM_SEEDS = 10_000
SEEDS_A_TEST = 250


@pytest.mark.parametrize("first", range(0, NUM_SEEDS, SEEDS_A_TEST))
def test_promises_are_kept_whatever_fails(first: int) -> None:
    sums = tally(range(first, first + SEEDS_A_TEST))
    assert sums.failed == {}
    assert sums.num_schedules == SEEDS_A_TEST

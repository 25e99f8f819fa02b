"""The rule in numbers: 4 places, blocks of 4 slots, 10 usable blocks: 43 slots, those of a block begun included."""

from __future__ import annotations

import pytest

from gpu_node.engine.steps.admission.admission_rule import UNTIL_ONE_ENDS, AdmissionCase, AdmissionRule

RULE = AdmissionRule(max_num_seqs=4, block_size=4)


def case(num_taken_places: int, num_wanted_places: int, peak_slots: int) -> AdmissionCase:
    return AdmissionCase(num_taken_places, num_wanted_places, 10, lambda: peak_slots)


@pytest.mark.parametrize(("peak_slots", "num_steps"), [(43, 0), (44, 1), (60, 17)])
def test_a_step_lowers_the_peak_by_a_slot(peak_slots: int, num_steps: int) -> None:
    assert RULE.num_blocked_steps(case(2, 1, peak_slots)) == num_steps


def test_alone_a_request_always_has_its_try() -> None:
    assert RULE.num_blocked_steps(case(0, 1, 1000)) == 0
    assert RULE.num_blocked_steps(case(0, 4, 1000)) == 0


def test_places_come_before_memory() -> None:
    assert RULE.num_blocked_steps(case(3, 1, 0)) == 0
    assert RULE.num_blocked_steps(case(3, 2, 0)) == UNTIL_ONE_ENDS
    assert RULE.num_blocked_steps(case(0, 5, 0)) == UNTIL_ONE_ENDS


def test_where_places_decide_no_peak_is_asked_for() -> None:
    def unasked() -> int:
        raise AssertionError("it costs a look at every sequence")

    assert RULE.num_blocked_steps(AdmissionCase(4, 1, 10, unasked)) == UNTIL_ONE_ENDS
    assert RULE.num_admittable(AdmissionCase(3, 1, 10, unasked), typical_blocks=1) == 0


@pytest.mark.parametrize(
    ("num_taken", "num_wanted", "peak_slots", "num_admittable"),
    [
        (1, 0, 19, 2),  # 4 whole blocks of 10 are taken, and 6 are two times 3
        (1, 0, 20, 1),  # 5 are left
        (2, 1, 0, 1),  # one place is left
        (1, 1, 100, 0),
        (0, 0, 0, 3),
        (0, 0, 100, 1),  # alone, it always has its try
    ],
)
def test_as_many_typical_requests_as_places_and_blocks(
    num_taken: int, num_wanted: int, peak_slots: int, num_admittable: int
) -> None:
    assert RULE.num_admittable(case(num_taken, num_wanted, peak_slots), typical_blocks=3) == num_admittable

"""What steps cost, as numbers."""

from __future__ import annotations

from dataclasses import astuple

from shared.messages.nodes.step_cost import DecodeYield, StepCost


def test_no_number_of_a_cost_or_a_yield_is_left_out() -> None:
    for one in (StepCost(1.0, 2.0, 3.0, 4.0, 5.0), DecodeYield(6.0, 7.0)):
        assert one.numbers == astuple(one)

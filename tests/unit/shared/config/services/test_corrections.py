"""Corrections of predicted waits are left out by name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shared.config.config import ClusterConfig
from shared.config.services.corrections import Correction, PredictionOptions
from shared.config.services.queue import QueueOptions


def test_all_are_on_where_nothing_is_said() -> None:
    assert QueueOptions().corrections == frozenset(Correction)


def test_those_that_are_named_are_left_out() -> None:
    config = ClusterConfig.model_validate({"queue": {"predictions": {"without": ["slack", "prompts"]}}})
    assert frozenset(Correction) - config.queue.corrections == {Correction.SLACK, Correction.PROMPTS}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("slak", "no correction is named 'slak'; did you mean 'slack'?"),
        ("Change_Points", "no correction is named 'Change_Points'; did you mean 'change-points'?"),
        ("nothing", "no correction is named 'nothing'; there are: prompts, calibration, "),
    ],
)
def test_another_name_is_told_the_nearest(wrong: str, said: str) -> None:
    with pytest.raises(ValidationError) as found:
        PredictionOptions.model_validate({"without": ["slack", wrong]})
    (error,) = found.value.errors()
    assert error["loc"] == ("without", 1)
    assert said in error["msg"]

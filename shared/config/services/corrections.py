"""What corrects a predicted waiting time: each correction by name, with the plain path that is taken without it.

All are on unless they are left out: ``queue.predictions.without`` in the configuration, ``treadle sim run --without``.
What each is worth: ``benchmarks/qlm/prediction_ablation.py``. The estimator that they correct is `shared.estimator`.
"""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from shared.config.reading.keys import MIN_LIKENESS
from shared.config.section import Section


class Correction(StrEnum):
    """In the order in which they are applied: to what is learnt, to a queue, to those who go ahead, to the answer."""

    PROMPTS = "prompts"
    """Who begins waits for the prompts that its node has pulled before (`waits.prompts`). Without: for none of them."""
    CALIBRATION = "calibration"
    """Θ and the places of a full batch are those that were counted (`learnt.calibration`). Without: as modelled."""
    CHANGE_POINTS = "change-points"
    """A rate of arrival is a mean over as long as it has been the same (`learnt.changing_rate`). Without: over the last
    minute."""
    LIFETIMES = "lifetimes"
    """A stream goes on for as long as it has and as streams do, and silence tells that it has ended
    (`learnt.lifetimes`). Without: for as long again as it has."""
    PLANNED_ORDER = "planned-order"
    """Groups that came since the last plan stand where the next one can be expected to have them
    (`queues.planned_order`). Without: where they stand."""
    NEWCOMERS = "newcomers"
    """A request that comes and is due earlier goes ahead (`waits.newcomers`). Without: none due earlier comes."""
    JOINING = "joining"
    """Requests that come join groups ahead that have room (`waits.newcomers`). Without: none joins them."""
    INTERRUPTIONS = "interruptions"
    """Urgent newcomers of another model keep the node to themselves (`waits.interruptions`); plans are told, too.
    Without: they take no more of it than their work."""
    SERVED_ELSEWHERE = "served-elsewhere"
    """Clients are told that what waits behind a load of its model starts where the model is served already
    (`waits.elsewhere`). Without: when its own queue comes to it."""
    WORK_STEALING = "work-stealing"
    """And that nodes take over what waits elsewhere when they are done (`waits.elsewhere`). Without: each works off
    its own queue."""
    SLACK = "slack"
    """Who has slack waits for a place in a batch that leaves headroom, until its slack is gone
    (`shared.estimator.slack`). Without: for a place in a full batch."""
    LEARNT_BOUNDS = "learnt-bounds"
    """The 90 % bound is as wide as bounds that were missed have taught (`learnt.wait_intervals`). Without: as the
    model's own spread has it."""


def _known(name: object) -> object:
    if not isinstance(name, str) or name in list(Correction):
        return name
    names = [correction.value for correction in Correction]
    near = difflib.get_close_matches(name, names, n=1, cutoff=MIN_LIKENESS)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
    raise ValueError(f"no correction is named {name!r}; {hint}")


CorrectionName = Annotated[
    Correction, BeforeValidator(_known), WithJsonSchema({"type": "string", "enum": [*map(str, Correction)]})
]


class PredictionOptions(Section):
    """What predicted waiting times take into account."""

    without: tuple[CorrectionName, ...] = ()
    """Corrections that are left out, by name (`shared.config.services.corrections`): to see what each is worth."""

"""What an engine tells of its steps to a recorder."""

from __future__ import annotations

from typing import Protocol

from gpu_node.engine.border.plan import StepPlan, StepResult


class StepLog(Protocol):
    """Writes down what steps took; see `gpu_node.engine.process.step_file`."""

    def write(self, model: str, plan: StepPlan, result: StepResult, *, follows: bool) -> None:
        """A step of a model has been taken in. ``follows``: there had been work ever since the step before."""
        ...

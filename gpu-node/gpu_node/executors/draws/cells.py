"""Where drawn tokens lie on a device, so that steps submitted later can name them before they are drawn."""

from __future__ import annotations

from gpu_node.engine.border.plan import MAX_STEP_DRAWS, MAX_STEPS_AHEAD

NUM_CELLS = (MAX_STEPS_AHEAD + 1) * MAX_STEP_DRAWS
"""Those that a step fills lie apart from those of the steps whose tokens it may name."""


class Cells:
    """Gives the cells of a ring to the draws of step after step."""

    def __init__(self) -> None:
        self._num_steps = 0

    def take(self, num_draws: int) -> int:
        """The first of ``num_draws`` cells in a row. Called once for each step; `ValueError` if it draws too many."""
        if num_draws > MAX_STEP_DRAWS:
            raise ValueError(f"a step of {num_draws} draws; {MAX_STEP_DRAWS} are the most")
        first = self._num_steps * MAX_STEP_DRAWS % NUM_CELLS
        self._num_steps += 1
        return first

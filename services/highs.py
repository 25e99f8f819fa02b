"""HiGHS as the solvers of the services use it: one thread, the same answer each time, and silent."""

from __future__ import annotations

from typing import Any

import highspy

Expression = Any  # highspy's expressions and variables are one type to it


class SilentHighs(highspy.Highs):
    """Prints nothing: standard output belongs to reports and logs, and 1.16 prints its name while it is constructed.

    What is constructed first of all is the callbacks; options are known by then.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def enableCallbacks(self) -> None:  # noqa: D102, N802 (HiGHS's name)
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def new_solver(relative_gap: float, time_limit_s: float, max_tree_nodes: int | None = None) -> SilentHighs:
    """A program without variables; ``max_tree_nodes`` bounds the time alike on every machine."""
    solver = SilentHighs()
    options: dict[str, float | int] = {
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": relative_gap,
        "mip_abs_gap": 0.0,
        "time_limit": time_limit_s,
    }
    if max_tree_nodes is not None:
        options["mip_max_nodes"] = max_tree_nodes
    for option, value in options.items():
        solver.setOptionValue(option, value)
    return solver


def proven_gap(solver: SilentHighs) -> float:
    """How far what was found may be above the least, as a share of it: 1 where nothing better than that is known."""
    return min(1.0, float(solver.getInfo().mip_gap))

"""Options that are numbers between limits."""

from __future__ import annotations

import math

import click


class FiniteRange(click.FloatRange):
    """A number within limits. `click.FloatRange` takes NaN for one, since it is neither above nor below a limit."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; `click.BadParameter` for what is none, is endless, or lies beyond a limit."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return float(number)

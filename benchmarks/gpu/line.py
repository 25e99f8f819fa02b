"""A line of the table: something that was checked or measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One number, and what it has to be."""

    what: str
    value: float
    """NaN where there is none."""
    unit: str
    note: str = ""
    at_least: float | None = None
    at_most: float | None = None
    is_required: bool = False
    """Outside its bounds it is a defect; else a goal is missed."""
    key: str = ""
    """Under which later parts find the value."""

    @property
    def verdict(self) -> str:
        """What its bounds say of it, if it has any. A number that is none is outside of all."""
        if self.at_least is None and self.at_most is None:
            return ""
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        names = ("right", "WRONG") if self.is_required else ("met", "missed")
        return names[0] if low and high else names[1]

    @property
    def is_wrong(self) -> bool:
        """A defect."""
        return self.verdict == "WRONG"

    def row(self) -> dict[str, object]:
        """For JSON, which has no NaN."""
        return asdict(self) | {"value": self.value if self.value == self.value else None, "verdict": self.verdict}

    def text(self) -> str:
        """For people."""
        value = f"{self.value:12.2e}" if 0 < abs(self.value) < 1e-2 else f"{self.value:12,.3f}".rstrip("0").rstrip(".")
        bounds = [f">= {self.at_least:g}" if self.at_least is not None else ""]
        bounds += [f"<= {self.at_most:g}" if self.at_most is not None else ""]
        goal = " ".join(filter(None, [*bounds, self.verdict]))
        return f"{self.what:52} {value:>14} {self.unit:10} {goal:18} {self.note}".rstrip()


def failed(what: str, error: Exception) -> Line:
    """A part that could not go on; the others do."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    return Line(what, float("nan"), "", f"{type(error).__name__}: {first_line}", at_least=0.0, is_required=True)

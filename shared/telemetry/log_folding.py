"""Equal lines of a log: the first is said, the others are counted. No I/O and no clock: seconds are the caller's own.

An outage makes every loop of a process say the same a few times a second, and a client that is refused may try again as
fast as it can. What is said then is the first line at once, and every `FOLD_S` how many more there were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FOLD_S = 10.0  # often enough to see that it goes on, and 6 lines a minute of whatever repeats itself
MAX_KINDS = 256  # remembered at a time in a process, half a megabyte at most
MAX_KINDS_OF_EVENT = 16  # of one event: what clients send is in some fields, and they may send what they like
MAX_VALUE_CHARS = 200  # of a field, by which kinds differ
FOLDED_LEVELS = frozenset({"warning", "error", "critical"})  # below, every line is about something of its own

NUM_REPEATED = "num_repeated"
REPEATED_S = "repeated_s"
_ALSO = "and others"  # stands for the kinds beyond a limit

# What names one request, or is not what is said: lines are equal though these differ. Numbers are measurements, and
# make no difference either.
_OF_ONE_LINE = frozenset({"event", "level", "timestamp", "request_id", "trace_id", "exc_info", "stack_info"})

LogKind = tuple[tuple[str, str], ...]
"""Fields and their values; lines with the same are equal."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How often a line was not said."""

    kind: LogKind
    num_repeated: int
    within_s: float


@dataclass(slots=True)
class _Window:
    began_s: float
    num_repeated: int = 0


@dataclass(slots=True)
class Folding:
    """The lines that were said of late."""

    _windows: dict[LogKind, _Window] = field(default_factory=dict)

    def take(self, kind: LogKind, now: float) -> bool:
        """Whether a line is to be said; else it is counted."""
        kind = self._within_limits(kind, now)
        window = self._windows.get(kind)
        if window is None or (not window.num_repeated and now >= window.began_s + FOLD_S):
            self._windows[kind] = _Window(now)
            return True
        window.num_repeated += 1
        return False

    @property
    def due_s(self) -> float | None:
        """When there is something to summarise; None while nothing was counted."""
        return min((window.began_s + FOLD_S for window in self._windows.values() if window.num_repeated), default=None)

    def due(self, now: float) -> list[Summary]:
        """What was counted in the windows that are over. What goes on repeating itself is counted on, unsaid."""
        over = [(kind, window) for kind, window in self._windows.items() if now >= window.began_s + FOLD_S]
        return [self._close(kind, window, now) for kind, window in over if window.num_repeated]

    def rest(self, now: float) -> list[Summary]:
        """All that was counted and not yet said: the process ends."""
        return [self._close(kind, window, now) for kind, window in self._windows.items() if window.num_repeated]

    def _close(self, kind: LogKind, window: _Window, now: float) -> Summary:
        summary = Summary(kind, window.num_repeated, now - window.began_s)
        window.began_s, window.num_repeated = now, 0
        return summary

    def _within_limits(self, kind: LogKind, now: float) -> LogKind:
        if kind in self._windows:
            return kind
        event = kind[:2]
        if self._num_of(event) < MAX_KINDS_OF_EVENT and len(self._windows) < MAX_KINDS:
            return kind
        self._forget_old(now)
        if len(self._windows) >= MAX_KINDS:
            return (kind[0], ("event", _ALSO))
        return kind if self._num_of(event) < MAX_KINDS_OF_EVENT else (*event, ("kind", _ALSO))

    def _num_of(self, event: LogKind) -> int:
        return sum(one[:2] == event for one in self._windows)

    def _forget_old(self, now: float) -> None:
        old = [kind for kind, one in self._windows.items() if not one.num_repeated and now >= one.began_s + FOLD_S]
        for kind in old:
            del self._windows[kind]


def kind_of(line: Mapping[str, Any]) -> LogKind | None:
    """What a line is equal in to others; None for one that is always said.

    An error with a traceback is of a kind with all of the same event and type.
    """
    level = line.get("level", "")
    if level not in FOLDED_LEVELS or NUM_REPEATED in line:
        return None
    event = (("level", level), ("event", _short(str(line.get("event", "")))))
    if error := _error_type(line.get("exc_info")):
        return (*event, ("error_type", error))
    texts = (
        (name, _short(value))
        for name, value in sorted(line.items())
        if isinstance(value, str) and name not in _OF_ONE_LINE
    )
    return (*event, *texts)


def summary_line(summary: Summary) -> dict[str, Any]:
    """A summary as a line of the log: what the lines had in common, how many more there were, and in what time."""
    return {
        **dict(summary.kind),
        NUM_REPEATED: summary.num_repeated,
        REPEATED_S: round(summary.within_s, 1),
    }


def _error_type(exc_info: object) -> str:
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    return type(exc_info).__name__ if isinstance(exc_info, BaseException) else ""


def _short(value: str) -> str:
    return value[:MAX_VALUE_CHARS]

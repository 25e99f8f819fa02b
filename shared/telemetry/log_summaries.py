"""Folds the lines of this process's log (`log_folding`): a processor for ours, a filter for those of libraries.

Summaries come from a thread of their own, since the line that repeats itself may be the last one for long.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from shared.telemetry.log_folding import Folding, LogKind, Summary, kind_of, summary_line

Say = Callable[[Mapping[str, Any]], None]
"""Writes one line into the log, with the level that it has."""


class LogFolder:
    """One a process. Any thread may log."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._folding = Folding()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_idle = False
        self._is_over = False
        atexit.register(self._say_rest)

    def __call__(self, _: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        """As a structlog processor, behind the one that adds the level and before the one that renders exceptions."""
        kind = kind_of(event if event.get("exc_info") is not True else {**event, "exc_info": sys.exc_info()})
        if kind is not None and not self._take(kind):
            raise structlog.DropEvent
        return event

    def filter(self, record: logging.LogRecord) -> bool:
        """As a filter of `logging`. Lines of libraries are equal in what they say of whatever it is about."""
        line = {"level": record.levelname.lower(), "event": str(record.msg), "logger": record.name}
        kind = kind_of({**line, "exc_info": record.exc_info})
        return kind is None or self._take(kind)

    def _take(self, kind: LogKind) -> bool:
        with self._changed:
            is_said = self._folding.take(kind, time.monotonic())
            if not is_said and self._thread is None:
                self._thread = threading.Thread(target=self._summarise, name="log summaries", daemon=True)
                self._thread.start()
            if self._is_idle and not is_said:  # else the thread wakes by itself, no more than `FOLD_S` from now
                self._changed.notify()
            return is_said

    def _summarise(self) -> None:
        while not self._is_over:
            with self._changed:
                due_s = self._folding.due_s
                self._is_idle = due_s is None
                if not self._is_over:
                    self._changed.wait(None if due_s is None else max(0.0, due_s - time.monotonic()))
                summaries = self._folding.due(time.monotonic())
            self._say_all(summaries)

    def _say_rest(self) -> None:
        """The process ends. A thread that wrote while Python goes down could end it with words of its own."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            summaries = self._folding.rest(time.monotonic())
        self._say_all(summaries)

    def _say_all(self, summaries: list[Summary]) -> None:
        for summary in summaries:
            self._say(summary_line(summary))

"""Lines of logs: when each was written, how several files become one, and how a line is shown. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# Redis: "1234:M 23 Nov 2026 09:12:33.123 * Ready to accept connections", in the machine's own time
_OF_REDIS = re.compile(r"^\d+:[A-Z] (\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}) ")
_REDIS_TIME = "%d %b %Y %H:%M:%S.%f"
_KNOWN = ("timestamp", "level", "event", "exception", "service", "instance")
_WORKER = re.compile(r"-w(\d+)-[0-9a-f]+$")  # of a gateway's workers, which share its log (`gateway.serving`)
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one process."""

    when: datetime
    """Of a line that does not say so (a traceback, words of a library), that of the line before it."""
    name: str
    text: str
    fields: dict[str, Any] | None
    """Of a line in JSON."""


def read_lines(name: str, texts: Iterable[str], since: datetime = _LONG_AGO) -> list[LogLine]:
    """Lines of a process in the order of its file; ``since`` is when the one before them was written."""
    found = []
    for text in texts:
        fields = _fields(text)
        since = _when(text, fields) or since
        found.append(LogLine(since, name, text, fields))
    return found


def merged(logs: Iterable[list[LogLine]]) -> list[LogLine]:
    """One log of several, by time."""
    return sorted((line for log in logs for line in log), key=lambda line: line.when)


def shown(line: LogLine, width: int) -> str:
    """For a reader: time in UTC, who (in ``width`` columns), how bad, what, and what is known of it."""
    when = " " * 24 if line.when == _LONG_AGO else f"{line.when:%Y-%m-%dT%H:%M:%S}.{line.when.microsecond // 1000:03}Z"
    begin = f"{when} {line.name:<{width}} "
    if line.fields is None:
        return begin + _printable(line.text)
    level = str(line.fields.get("level", ""))
    worker = _WORKER.search(str(line.fields.get("instance", "")))
    of_worker = {"worker": worker[1]} if worker else {}
    told = {name: value for name, value in line.fields.items() if name not in _KNOWN}
    known = " ".join(f"{name}={_value(value)}" for name, value in (of_worker | told).items())
    event = _printable(str(line.fields.get("event", "")))
    said = f"{begin}{click.style(f'{level:<8}', fg=_COLOURS.get(level))} {event}"
    trace = str(line.fields.get("exception", "")).splitlines()
    return "\n".join([f"{said}  {known}".rstrip(), *(f"{begin}  {_printable(one)}" for one in trace)])


def as_json(line: LogLine) -> str:
    """For a program: the line's own fields, or its text, with the name of the process."""
    fields = {"text": line.text} if line.fields is None else line.fields
    when = {} if line.when == _LONG_AGO else {"timestamp": line.when.isoformat()}
    return json.dumps({**when, **fields, "process": line.name}, ensure_ascii=False)


def _fields(text: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _when(text: str, fields: dict[str, Any] | None) -> datetime | None:
    try:
        if fields is not None:
            found = datetime.fromisoformat(str(fields.get("timestamp")))
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        of_redis = _OF_REDIS.match(text)
        return datetime.strptime(of_redis[1], _REDIS_TIME).astimezone(UTC) if of_redis else None
    except ValueError:
        return None  # it says no time, or none that can be


def _value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and " " not in value:
        return value
    return json.dumps(value)


def _printable(text: str) -> str:
    """Terminals obey control characters, and what clients send may come to stand in a log."""
    return "".join(one if one.isprintable() or one == "\t" else "\N{REPLACEMENT CHARACTER}" for one in text)

"""Reads and replays a transcript: a text file of inputs, each followed by what the core answers.

    # a comment; comments and empty lines stay where they are
    > 1.000 Submit {"request_id": "r1", "model": "a", "slo": "interactive"}
      treadle:group:g0 <- Enqueued {"request_id": "r1", "attempt": 0, "gateway": "gw"}
      wake 11.000

An input is a time in seconds, a message class and its fields; what is left out has its default, or the stand-in below.
``> snapshot`` goes on with a core that was restored from a snapshot, ``> describe`` shows what an operator sees.
Effects: ``STREAM <- MESSAGE`` (``if it exists``: only to a stream that is there), ``drop STREAM``, ``solve {...}``; and
``wake`` when the time at which the core wants a `Tick` has changed. A plan answers a question of this transcript
(`tests.scenarios.questions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from shared.config.config import ClusterConfig
from shared.messages.messages import AnyMessage
from shared.service.core import Core, Drop, Effect, Send
from tests.scenarios.questions import Questions

CLASSES = {kind.__name__: kind for kind in get_args(AnyMessage)}
STAND_INS: dict[str, dict[str, object]] = {
    "Submit": {"gateway": "gw", "slo": "interactive", "prompt_tokens": 8, "max_tokens": 100},
    "Heartbeat": {
        "facts": {"device": "cpu"},
        "model": "",
        "num_blocks": 100,
        "num_free_blocks": 100,
        "num_running": 0,
        "num_waiting": 0,
    },
}


def replay(text: str, make_core: Callable[[], Core], check: Callable[[Core], None], *, always_restore: bool) -> str:
    """The transcript that ``make_core()`` gives for the inputs in ``text``; ``check`` is called after each of them.

    With ``always_restore`` the core is replaced by one restored from its snapshot after every input.
    """
    core = make_core()
    wake = core.wake_at
    questions = Questions()
    answer: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue  # what it answered when this was written
        answer.append(line)
        if not line.startswith("> "):
            continue
        if line == "> describe":
            answer += [f"  {shown}" for shown in _describe(core)]
        elif line != "> snapshot":
            message, now = parse(line)
            questions.hear(message)
            for effect in core.handle(message, now):
                questions.see(effect)
                answer.append(f"  {show(effect)}")
        if line == "> snapshot" or always_restore:
            state = core.snapshot()
            core = make_core()
            core.restore(state)
            assert core.snapshot() == state
        if core.wake_at != wake:
            wake = core.wake_at
            answer.append(f"  wake {'never' if wake is None else format(wake, '.3f')}")
        check(core)
    return "\n".join(answer) + "\n"


def parse(line: str) -> tuple[AnyMessage, float]:
    """``> TIME CLASS {FIELDS}`` as a message and its time."""
    _, time_s, name, *rest = line.split(" ", 3)
    fields = _filled(STAND_INS.get(name, {}), json.loads(rest[0] if rest else "{}"))
    if isinstance(fields.get("slo"), str):
        fields["slo"] = ClusterConfig().slo(fields["slo"])
    message: AnyMessage = msgspec.convert(msgspec.to_builtins(fields), CLASSES[name])
    return message, float(time_s)


def _filled(stand_ins: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is given, and the stand-ins for what is not; in records inside, too."""
    inner = {key: value | given[key] for key, value in stand_ins.items() if key in given and isinstance(value, dict)}
    return {**stand_ins, **given, **inner}


def show(effect: Effect) -> str:
    """One effect as one line."""
    match effect:
        case Send(stream, message, to_existing):
            where = f"{stream} if it exists" if to_existing else stream
            return f"{where} <- {type(message).__name__} {json.dumps(_plain(message))}"
        case Drop(stream):
            return f"drop {stream}"
        case _:
            return f"solve {json.dumps(_plain(effect.problem))}"


def _describe(core: Core) -> Iterator[str]:
    for key, value in core.describe().items():
        if isinstance(value, list | dict):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            yield f"{key}:"
            yield from (f"  {name}: {json.dumps(item)}" for name, item in items)
        else:
            yield f"{key}: {json.dumps(value)}"


def _default(field: msgspec.inspect.Field) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _plain(value: object) -> object:
    """Plain JSON values, without the fields that have their defaults; numbers to three places."""
    kind = msgspec.inspect.type_info(type(value))
    if isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        defaults = {field.name: _default(field) for field in kind.fields}
        fields = {name: getattr(value, name) for name in defaults}
        return {name: _plain(item) for name, item in fields.items() if item != defaults[name]}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, float):
        return round(value, 3)
    return [_plain(item) for item in value] if isinstance(value, list) else value

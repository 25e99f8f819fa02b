"""Outputs that are calls of functions and nothing else, as a constraint: no model, however small, fails to write one.

They are written as the model's family writes them, so what reads them is what reads calls that a model makes of itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.tools.notation import Notation
from shared.grammars.definition import JSON_OPTIONS
from shared.messages.payload import Constraint

MAX_FORCED_CALLS = 16  # in one output: a small model may else call until its tokens are spent

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ForcedFunction:
    """A function that may be called."""

    name: str
    """Letters, digits, ``_`` and ``-``."""
    parameters: Mapping[str, Any] | None
    """A JSON schema of an object; None for a function without parameters."""

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments, which are an object whatever else it says."""
        return {**(NO_PARAMETERS if self.parameters is None else self.parameters), "type": "object"}


def forced_calls(
    notation: Notation, functions: Sequence[ForcedFunction], control_ids: Mapping[str, int], *, is_single: bool
) -> Constraint:
    """A grammar of one call, or of up to `MAX_FORCED_CALLS` unless it ``is_single``.

    ``control_ids`` has those markers of the notation that are control tokens of the model, which have no text.
    """
    calls = [f"call_{number}" for number in range(len(functions))]
    lines = [_start(notation, control_ids, is_single=is_single), f"call: {' | '.join(calls)}"]
    for rule, function in zip(calls, functions, strict=True):
        begin = f'{{"name": "{function.name}", "{notation.arguments_key}": '
        schema = function.schema | {"x-guidance": JSON_OPTIONS}
        lines.append(f'{rule}: {_literal(begin)} %json {json.dumps(schema)} "}}"')
    return Constraint("grammar", "\n".join(lines) + "\n")


def _start(notation: Notation, control_ids: Mapping[str, int], *, is_single: bool) -> str:
    def marker(text: str) -> str:
        return f"<[{control_ids[text]}]>" if text in control_ids else _literal(text)

    def calls(rule: str, separator: str) -> str:
        return rule if is_single else f"{rule} ({_literal(separator)} {rule}){{0,{MAX_FORCED_CALLS - 1}}}"

    if notation.is_list:
        return f'start: {marker(notation.begin)} " "? "[" {calls("call", ", ")} "]"'
    if notation.is_bare:
        return f"start: {calls('call', '; ')}"
    item = f'item: {marker(notation.begin)} "\\n" call "\\n" {marker(notation.end)}'
    return f"start: {calls('item', chr(10))}\n{item}"


def _literal(text: str) -> str:
    return json.dumps(text)

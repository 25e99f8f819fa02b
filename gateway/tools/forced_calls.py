"""Outputs that are calls of functions and nothing else, as a constraint: no model, however small, fails to write one.

They are written as the model's family writes them, so what reads them is what reads calls that a model makes of itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.reasoning.lead import in_grammar
from gateway.tools.notation import ID_MARK, Notation
from shared.grammars.definition import JSON_OPTIONS
from shared.messages.requests.payload import Constraint

MAX_FORCED_CALLS = 16  # in one output: a small model may else call until its tokens are spent

_NUMBER = "/[0-9]{1,3}/"  # of a call, where it has one

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
        schema = function.schema | {"x-guidance": JSON_OPTIONS}
        before, behind = _around_arguments(notation, function.name, control_ids)
        lines.append(f"{rule}: {before} %json {json.dumps(schema)} {behind}")
    return Constraint("grammar", "\n".join(lines) + "\n")


def _around_arguments(notation: Notation, name: str, control_ids: Mapping[str, int]) -> tuple[str, str]:
    """Of one call, without its marks, in a grammar; where arguments may also be written otherwise, they are JSON."""
    if notation.has_numbered_ids:
        before = in_grammar(f"{notation.before_name}{name}{ID_MARK}", control_ids)
        return f"{before} {_NUMBER} {in_grammar(notation.separator, control_ids)}", ""
    if notation.separator:
        return in_grammar(f"{notation.before_name}{name}{notation.separator}", control_ids), ""
    return in_grammar(f'{{"name": "{name}", "{notation.arguments_key}": ', control_ids), in_grammar("}", control_ids)


def _start(notation: Notation, control_ids: Mapping[str, int], *, is_single: bool) -> str:
    def calls(rule: str, separator: str) -> str:
        between = f"{in_grammar(separator, control_ids)} " if separator else ""
        return rule if is_single else f"{rule} ({between}{rule}){{0,{MAX_FORCED_CALLS - 1}}}"

    begin, end = in_grammar(notation.begin, control_ids), in_grammar(notation.end, control_ids)
    if notation.is_last:
        return f"start: {begin} call"
    if notation.is_list:
        list_end = in_grammar(notation.list_end, control_ids)
        return f'start: {begin} " "? "[" {calls("call", ", ")} "]" {list_end}'.rstrip()
    if notation.is_bare:
        return f"start: {calls('call', '; ')}"
    if notation.is_run:
        return f"start: {begin} {calls('call', chr(10))} {end}"
    if not notation.separator:
        return f'start: {calls("item", chr(10))}\nitem: {begin} "\\n" call "\\n" {end}'
    item = f"item: {begin} call {end}"
    if notation.section is None:
        return f"start: {calls('item', '')}\n{item}"
    first, last = (in_grammar(mark, control_ids) for mark in notation.section)
    around = f" {json.dumps(chr(10))} " if notation.is_section_on_lines else " "
    return f"start: {first}{around}{calls('item', chr(10))}{around}{last}\n{item}"

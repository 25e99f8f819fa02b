"""A constraint as llguidance's grammar.

JSON has white space as a client's model likes to write it, but never more of it in a row than `MAX_WHITESPACE`: a small
model may else write nothing but spaces until its tokens are spent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llguidance import grammar_from
from llguidance.gbnf_to_lark import gbnf_to_lark

from shared.grammars.multiples import multiples_problem, schemas_in
from shared.messages.requests.payload import Constraint

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_WHITESPACE = 64
"""Characters between two tokens of JSON: a line's end and an indentation."""

JSON_OPTIONS: JsonCompileOptions = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{MAX_WHITESPACE}}}",
    "coerce_one_of": False,
    "lenient": False,
}
"""How JSON is written; a schema's own ``x-guidance`` is overruled. Not lenient: a keyword that cannot be kept is an
error, never left out in silence."""

_LARK = re.compile(r"^[^\S\n]*+(?:%llguidance\b|start\s*+:)", re.MULTILINE)
"""What tells Lark's notation from llama.cpp's. As llguidance has it, but each character is looked at once: its own
would hold up the interpreter for seconds with a grammar of empty lines."""


class GrammarError(ValueError):
    """A constraint that is no grammar; its text says why."""


def definition(constraint: Constraint) -> str:
    """The grammar of the constraint, as llguidance's matchers take it. `GrammarError` where there is none.

    It may still be wrong, too large or without any word: `shared.grammars.problem` says whether. Where only one text
    can follow, any cut of it into tokens is allowed, so that the model writes it as it is used to: llguidance would
    else allow the one cut that it takes for the tokenizer's.
    """
    start = f"start: lead @constraint\n{constraint.lead}" if constraint.lead else "start: @constraint"
    unforced = {"lark_grammar": f'%llguidance {{"no_forcing": true}}\n{start}'}
    try:
        return json.dumps({"grammars": [unforced, {**_part(constraint), "name": "constraint"}]})
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _part(constraint: Constraint) -> dict[str, Any]:
    """As one of llguidance's grammars."""
    if constraint.kind == "json_schema":
        schema = _json(constraint.text)
        if not isinstance(schema, dict):
            raise GrammarError("a schema is a JSON object")
        _check_multiples([schema])
        return {"json_schema": schema | {"x-guidance": JSON_OPTIONS}}
    if constraint.kind == "choice":
        texts = _json(constraint.text)
        if not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
            raise GrammarError("choices are a JSON list of at least one string")
    if constraint.kind == "regex":
        part: dict[str, Any] = json.loads(grammar_from("regex", constraint.text))["grammars"][0]
        return part
    if constraint.kind == "grammar":
        lark = _in_lark(constraint.text)
        _check_multiples(schemas_in(lark))
        return {"lark_grammar": lark}
    return {"lark_grammar": grammar_from(constraint.kind, constraint.text)}


def _in_lark(text: str) -> str:
    """A grammar in Lark's or llama.cpp's notation, in Lark's."""
    if _LARK.search(text) is not None:
        return text
    try:
        return gbnf_to_lark(text)
    except Exception as error:  # it raises whatever a text of others leads it to
        raise GrammarError(f"it is no grammar of llama.cpp's: {error}") from error


def _check_multiples(schemas: Iterable[Any]) -> None:
    problem = multiples_problem(schemas)
    if problem:
        raise GrammarError(problem)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise GrammarError("it is nested too deeply") from error

"""How the families of models write calls of functions. A family is known by what its chat template has in it.

``hermes`` (Hermes, Qwen and many others): ``<tool_call>``, an object with name and arguments, ``</tool_call>``.
``llama3_json``: an object with name and parameters, and nothing around it; several are parted by ``;``.
``mistral``: ``[TOOL_CALLS]`` and a list of objects with name and arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notation:
    """One of them. The first character of a marker occurs nowhere else in it."""

    begin: str
    """Marks what follows as a call, or a list of them."""
    end: str
    """Behind a call; ``""`` where its object is its end."""
    arguments_key: str
    """Of a call's object, beside ``name``; readers take either of the two that there are."""
    is_list: bool = False
    """Calls stand in a JSON list."""
    is_bare: bool = False
    """A call may also begin without its mark, at the beginning of the output."""
    id_characters: int = 0
    """Templates of the family want ids of calls to have exactly as many; 0 where they take any."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What may be a control token of the model, and has to be seen in its output all the same."""
        return (self.begin, self.end) if self.end else (self.begin,)


HERMES = Notation("<tool_call>", "</tool_call>", "arguments")
LLAMA3_JSON = Notation("<|python_tag|>", "", "parameters", is_bare=True)
MISTRAL = Notation("[TOOL_CALLS]", "", "arguments", is_list=True, id_characters=9)

NOTATIONS = {"hermes": HERMES, "llama3_json": LLAMA3_JSON, "mistral": MISTRAL}

_LLAMA3_SIGNS = ("<|python_tag|>", '{"name": function name, "parameters":')


def notation_of(template: str, wanted: str = "auto") -> Notation:
    """By name; ``auto``: by the model's template, ``""`` where there is none. Where it has no sign, it is `HERMES`."""
    if wanted != "auto":
        return NOTATIONS[wanted]
    if HERMES.begin in template:
        return HERMES
    if MISTRAL.begin in template:
        return MISTRAL
    return LLAMA3_JSON if any(sign in template for sign in _LLAMA3_SIGNS) else HERMES

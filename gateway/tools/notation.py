"""How the families of models write calls of functions. A family is known by what its chat template has in it.

``hermes`` (Hermes, Qwen and many others): ``<tool_call>``, an object with name and arguments, ``</tool_call>``.
``qwen3_coder``: ``<tool_call>``, ``<function=NAME>``, tags with arguments, ``</function>``, ``</tool_call>``.
``glm45``: ``<tool_call>NAME``, tags with keys and values, ``</tool_call>``.
``llama3_json``: an object with name and parameters, and nothing around it; several are parted by ``;``.
``mistral``: ``[TOOL_CALLS]`` and a list of objects with name and arguments.
``mistral_args``, of Mistral's models since 2025: ``[TOOL_CALLS]NAME[ARGS]`` and an object.
``deepseek_v3`` (and R1), ``deepseek_v31``: marks around name and arguments, and around all calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.tools.call_object import open_object
from gateway.tools.call_reader import CallOpener
from gateway.tools.named_call import named_call
from gateway.tools.tagged_call import open_argument_tags, open_function_tags


@dataclass(frozen=True, slots=True)
class Notation:
    """One of them. The first character of a marker occurs nowhere else in it."""

    begin: str
    """Marks what follows as a call, or a list of them."""
    end: str
    """Behind a call; ``""`` where a call is its own end."""
    openers: tuple[CallOpener, ...] = (open_object,)
    """How calls are written behind that mark; the first that fits reads one."""
    arguments_key: str = "arguments"
    """Of a call's object, beside ``name``; readers take either of the two that there are."""
    separator: str = ""
    """Between name and arguments, where calls are no objects with both."""
    before_name: str = ""
    """Behind the mark of a call, with a separator."""
    section: tuple[str, str] | None = None
    """Marks around all calls of an output."""
    is_list: bool = False
    """Calls stand in a JSON list."""
    is_bare: bool = False
    """A call may also begin without its mark, at the beginning of the output."""
    id_characters: int = 0
    """Templates of the family want ids of calls to have exactly as many; 0 where they take any."""
    controls: tuple[str, ...] = ()
    """Further texts in all this that may be control tokens."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What may be a control token of the model, and has to be seen in its output all the same."""
        return (*filter(None, (self.begin, self.end)), *(self.section or ()), *self.controls)


HERMES = Notation("<tool_call>", "</tool_call>")
QWEN3_CODER = Notation("<tool_call>", "</tool_call>", (open_object, open_function_tags))
GLM45 = Notation("<tool_call>", "</tool_call>", (open_object, open_argument_tags))
LLAMA3_JSON = Notation("<|python_tag|>", "", arguments_key="parameters", is_bare=True)
MISTRAL = Notation("[TOOL_CALLS]", "", is_list=True, id_characters=9)
MISTRAL_ARGS = Notation(
    "[TOOL_CALLS]",
    "",
    (named_call("[ARGS]", id_mark="[CALL_ID]"),),
    separator="[ARGS]",
    id_characters=9,
    controls=("[ARGS]", "[CALL_ID]"),
)
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_NAME = "<｜tool▁sep｜>"
DEEPSEEK_V31 = Notation(
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    (named_call(_DEEPSEEK_NAME),),
    separator=_DEEPSEEK_NAME,
    section=_DEEPSEEK,
    controls=(_DEEPSEEK_NAME,),
)
DEEPSEEK_V3 = Notation(
    "<｜tool▁call▁begin｜>",
    "\n```<｜tool▁call▁end｜>",
    (named_call("\n```json\n", before=f"function{_DEEPSEEK_NAME}"),),
    separator="\n```json\n",
    before_name=f"function{_DEEPSEEK_NAME}",
    section=_DEEPSEEK,
    controls=(_DEEPSEEK_NAME, "<｜tool▁call▁end｜>"),
)

NOTATIONS = {
    "hermes": HERMES,
    "qwen3_coder": QWEN3_CODER,
    "glm45": GLM45,
    "llama3_json": LLAMA3_JSON,
    "mistral": MISTRAL,
    "mistral_args": MISTRAL_ARGS,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
}

_SIGNS: list[tuple[tuple[str, ...], Notation]] = [
    (("<function=", "<parameter="), QWEN3_CODER),
    (("<arg_key>", "<arg_value>"), GLM45),
    (("<tool_call>",), HERMES),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    ((_DEEPSEEK_NAME, "```json"), DEEPSEEK_V3),
    ((_DEEPSEEK_NAME,), DEEPSEEK_V31),
    (("<|python_tag|>",), LLAMA3_JSON),
    (('{"name": function name, "parameters":',), LLAMA3_JSON),
]
"""What a template has, all of it, of each; the first that fits counts."""


def notation_of(template: str, wanted: str = "auto") -> Notation:
    """By name; ``auto``: by the model's template, ``""`` where there is none. Where it has no sign, it is `HERMES`."""
    if wanted != "auto":
        return NOTATIONS[wanted]
    found = (notation for signs, notation in _SIGNS if all(sign in template for sign in signs))
    return next(found, HERMES)

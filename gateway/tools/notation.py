"""How the families of models write calls of functions. A family is known by what its chat template has in it.

``hermes`` (Hermes, Qwen and many others): ``<tool_call>``, an object with name and arguments, ``</tool_call>``.
``qwen3_coder``: ``<tool_call>``, ``<function=NAME>``, tags with arguments, ``</function>``, ``</tool_call>``.
``glm45``: ``<tool_call>NAME``, tags with keys and values, ``</tool_call>``.
``llama3_json``: an object with name and parameters, and nothing around it; several are parted by ``;``.
``mistral``: ``[TOOL_CALLS]`` and a list of objects with name and arguments.
``mistral_args``, of Mistral's models since 2025: ``[TOOL_CALLS]NAME[ARGS]`` and an object.
``deepseek_v3`` (and R1), ``deepseek_v31``, ``kimi_k2``: marks around name and arguments, and around all calls.
``harmony`` (gpt-oss): a message to a function, as `gateway.reasoning.harmony` passes it on.
``pythonic`` (Llama 3.2 and 4), ``lfm2``: a list of Python's calls, with marks around it or without.
``granite`` (Granite 3, Phi-4-mini): a mark and a list of objects with name and arguments.
``gemma4``: ``<|tool_call>call:NAME{…}<tool_call|>``.
``minimax_m2``, ``deepseek_v32``, ``deepseek_v4``: tags of XML's kind, ``<invoke name="NAME">``, with marks around all.
``olmo3``: ``<function_calls>``, Python's calls, a line each, ``</function_calls>``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.reasoning.harmony import CALL_END, CALL_HEADER, MESSAGE
from gateway.reasoning.marks import HARMONY as HARMONY_MARKS
from gateway.tools.calls.call_object import open_object
from gateway.tools.calls.call_reader import CallOpener
from gateway.tools.calls.gemma_call import QUOTE, open_gemma
from gateway.tools.calls.invoke_call import invoke_call
from gateway.tools.calls.named_call import named_call
from gateway.tools.calls.python_call import open_python
from gateway.tools.calls.tagged_call import open_argument_tags, open_function_tags

ID_MARK = ":"
"""Between a function and the number of its call, in ids that have one."""


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
    is_section_on_lines: bool = False
    """Those marks stand on lines of their own."""
    is_list: bool = False
    """Calls stand in a JSON list."""
    list_end: str = ""
    """Behind such a list; it may be missing."""
    is_run: bool = False
    """Several calls may stand between ``begin`` and ``end``, a line each."""
    is_bare: bool = False
    """A call, or a list of them, may also begin without its mark, at the beginning of the output."""
    is_last: bool = False
    """An output ends with its first call: the mark behind that is the model's end of an output."""
    id_characters: int = 0
    """Templates of the family want ids of calls to have exactly as many; 0 where they take any."""
    has_numbered_ids: bool = False
    """A call's id is what it writes before its arguments: the name and the call's number in the conversation."""
    controls: tuple[str, ...] = ()
    """Further texts in all this that may be control tokens."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What may be a control token of the model, and has to be seen in its output all the same."""
        return (*filter(None, (self.begin, self.end, self.list_end)), *(self.section or ()), *self.controls)

    def numbered_id(self, name: str, number: int) -> str:
        """Of a call, where they have such ids."""
        return f"{self.before_name}{name}{ID_MARK}{number}"


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
_KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
KIMI_K2 = Notation(
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    (named_call(_KIMI_ARGUMENTS, before="functions.", id_mark=ID_MARK),),
    separator=_KIMI_ARGUMENTS,
    before_name="functions.",
    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    has_numbered_ids=True,
    controls=(_KIMI_ARGUMENTS,),
)
_HARMONY_ARGUMENTS = f" <|constrain|>json{MESSAGE}"
HARMONY = Notation(
    CALL_HEADER,
    CALL_END,
    (named_call(MESSAGE, _HARMONY_ARGUMENTS),),
    separator=_HARMONY_ARGUMENTS,
    is_last=True,
    controls=HARMONY_MARKS.controls,
)
PYTHONIC = Notation(
    "<|python_start|>",
    "",
    (open_python, open_object),
    arguments_key="parameters",
    is_list=True,
    list_end="<|python_end|>",
    is_bare=True,
)
LFM2 = Notation("<|tool_call_start|>", "", (open_python, open_object), is_list=True, list_end="<|tool_call_end|>")
GRANITE = Notation("<|tool_call|>", "", is_list=True, list_end="<|/tool_call|>")
GEMMA4 = Notation("<|tool_call>", "<tool_call|>", (open_gemma, open_object), controls=(QUOTE,))
_INVOKE_NAME = '">'
MINIMAX_M2 = Notation(
    '<invoke name="',
    "</invoke>",
    (invoke_call(),),
    separator=_INVOKE_NAME,
    section=("<minimax:tool_call>", "</minimax:tool_call>"),
    is_section_on_lines=True,
)
DSML = "｜DSML｜"
"""The word in DeepSeek's tags."""
DEEPSEEK_V32 = Notation(
    f'<{DSML}invoke name="',
    f"</{DSML}invoke>",
    (invoke_call(DSML),),
    separator=_INVOKE_NAME,
    section=(f"<{DSML}function_calls>", f"</{DSML}function_calls>"),
    is_section_on_lines=True,
    controls=(DSML,),
)
DEEPSEEK_V4 = replace(DEEPSEEK_V32, section=(f"<{DSML}tool_calls>", f"</{DSML}tool_calls>"))
OLMO3 = Notation("<function_calls>", "</function_calls>", (open_python, open_object), is_run=True)

NOTATIONS = {
    "hermes": HERMES,
    "qwen3_coder": QWEN3_CODER,
    "glm45": GLM45,
    "llama3_json": LLAMA3_JSON,
    "mistral": MISTRAL,
    "mistral_args": MISTRAL_ARGS,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "kimi_k2": KIMI_K2,
    "harmony": HARMONY,
    "pythonic": PYTHONIC,
    "lfm2": LFM2,
    "granite": GRANITE,
    "gemma4": GEMMA4,
    "minimax_m2": MINIMAX_M2,
    "deepseek_v32": DEEPSEEK_V32,
    "deepseek_v4": DEEPSEEK_V4,
    "olmo3": OLMO3,
}

_SIGNS: list[tuple[tuple[str, ...], Notation]] = [
    ((HARMONY_MARKS.begin,), HARMONY),
    (("<minimax:tool_call>", '<invoke name="'), MINIMAX_M2),
    ((DSML, "function_calls>"), DEEPSEEK_V32),
    ((DSML, "tool_calls>"), DEEPSEEK_V4),
    (("<function_calls>",), OLMO3),
    (("<|tool_call_begin|>", _KIMI_ARGUMENTS), KIMI_K2),
    (("<|tool_call_start|>",), LFM2),
    (("<|tool_call>", "<tool_call|>"), GEMMA4),
    (("<function=", "<parameter="), QWEN3_CODER),
    (("<arg_key>", "<arg_value>"), GLM45),
    (("<tool_call>",), HERMES),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    ((_DEEPSEEK_NAME, "```json"), DEEPSEEK_V3),
    ((_DEEPSEEK_NAME,), DEEPSEEK_V31),
    (("<|tool_call|>",), GRANITE),
    (("<|python_tag|>",), LLAMA3_JSON),
    (('{"name": function name, "parameters":',), LLAMA3_JSON),
    (("[func_name1(params_name1=params_value1",), PYTHONIC),
    (("<|python_start|>",), PYTHONIC),
]
"""What a template has, all of it, of each; the first that fits counts."""


def notation_of(template: str, wanted: str = "auto") -> Notation:
    """By name; ``auto``: by the model's template, ``""`` where there is none. Where it has no sign, it is `HERMES`."""
    if wanted != "auto":
        return NOTATIONS[wanted]
    found = (notation for signs, notation in _SIGNS if all(sign in template for sign in signs))
    return next(found, HERMES)

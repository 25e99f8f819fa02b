"""Messages to one prompt text, by the Jinja template of the model file and the conventions it was written for.

The conventions are those of Hugging Face `transformers`: trimmed blocks, loop controls, `raise_exception`,
`strftime_now`, a `tojson` that leaves characters as they are. The template is code from the network: it runs in a
sandbox that cannot reach Python's insides nor change what it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any, NoReturn

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.reasoning.marks import ReasoningMarks, is_left_open

Settings = Mapping[str, str | float | bool]
NO_SETTINGS: Settings = {}
MAX_KNOWN_SETTINGS = 16
"""Of a template, of which it is remembered whether they leave its prompts among thoughts."""
MAX_COMPILED = 16
"""Templates whose code is kept: to compile a long one takes tens of milliseconds."""
_ASKS_FOR_NONE = re.compile(r"\bcontent(?:['\"]\])? is (?:not )?none\b")
_READS_THINKING = re.compile(r"\bmessage(?:\.thinking\b|\[['\"]thinking['\"]\])")
_PROBE = "loom"
_GIVEN = {"messages", "tools", "documents", "add_generation_prompt"}


class ChatTemplateError(ValueError):
    """The template refuses these messages, or cannot cope with them; the text says why."""


class SettingError(ValueError):
    """Something is to be set that the template does not have; the text says what it has."""


class ChatTemplate:
    """One model's template, compiled. Raises `ChatTemplateError` if the source is no valid template.

    It may use the model's ``special_tokens`` by name: ``bos_token``, ``eos_token`` and whatever else there is.
    """

    def __init__(self, source: str, **special_tokens: str) -> None:
        environment = _environment()
        environment.globals |= special_tokens | {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        self.source = source
        try:
            variables, code = _compiled(source)
        except TemplateError as error:
            raise ChatTemplateError(_text(error)) from error
        except Exception as error:  # nested so deeply that Jinja, or Python behind it, gives up
            raise ChatTemplateError(f"it cannot be compiled ({type(error).__name__}: {_text(error)})") from error
        self.takes_tools = "tools" in variables
        """It can tell the model of functions."""
        self.knows_none = _ASKS_FOR_NONE.search(source) is not None
        """It asks whether a turn has content at all; for others, a turn without has an empty text."""
        self.knows_thinking = _READS_THINKING.search(source) is not None
        """It calls what an assistant thought ``thinking``, as gpt-oss's does."""
        self.settings = frozenset(variables - _GIVEN - environment.globals.keys())
        """Names of what a client may set in it."""
        self.takes_texts = lru_cache(1)(self._takes_texts)
        self.takes_parts = lru_cache(1)(self._takes_parts)
        self._leaves_open = lru_cache(MAX_KNOWN_SETTINGS)(self._is_left_open)
        # Jinja joins globals and messages for every prompt; of its chain of mappings, that takes half of a rendering
        self._template = environment.template_class.from_code(environment, code, dict(environment.globals))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        is_open: bool = True,
        settings: Settings = NO_SETTINGS,
    ) -> str:
        """The conversation; where it ``is_open``, with the beginning of the assistant's next turn.

        ``tools`` are the functions that the model may call, each as OpenAI's API has it. ``settings`` are among those
        that it has.
        """
        unknown = sorted(settings.keys() - self.settings)
        if unknown:
            known = ", ".join(sorted(self.settings)) or "nothing"
            raise SettingError(f"the chat template of this model has no {unknown[0]!r}; what can be set is: {known}")
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": is_open}
        try:
            text = self._template.render(**settings, **given)
            text.encode()  # half a character, which a template can write by its number, is no text
        except TemplateError as error:
            raise ChatTemplateError(_text(error)) from error
        except Exception as error:
            # an expression of the template failed on a shape of messages that its author did not think of
            raise ChatTemplateError(f"it failed with {type(error).__name__}: {_text(error)}") from error
        return text

    def _takes_texts(self) -> bool:
        """A content may be a text: some templates of models that read images know lists of parts alone."""
        return self._shows(_PROBE)

    def _takes_parts(self) -> bool:
        """A content may be a list of parts, each with its ``type``."""
        return self._shows([{"type": "text", "text": _PROBE}])

    def _shows(self, content: str | list[dict[str, str]]) -> bool:
        try:
            shown = self.render([{"role": "user", "content": content}])
        except ChatTemplateError:
            return False
        return _PROBE in shown and "'type'" not in shown and '"type"' not in shown  # else as Python writes a list

    def leaves_open(self, marks: ReasoningMarks, settings: Settings = NO_SETTINGS) -> bool:
        """Whether a prompt ends among thoughts, so that the output goes on with them."""
        return self._leaves_open(marks, tuple(sorted((name, type(one), one) for name, one in settings.items())))

    def _is_left_open(self, marks: ReasoningMarks, settings: tuple[tuple[str, type, str | float | bool], ...]) -> bool:
        try:
            prompt = self.render([{"role": "user", "content": ""}], settings={name: one for name, _, one in settings})
        except ChatTemplateError:  # it wants other messages: what it says of those is heard there
            return False
        return is_left_open(prompt, marks)


def _environment() -> ImmutableSandboxedEnvironment:
    """All but the names that a template may use."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    return environment


@lru_cache(MAX_COMPILED)
def _compiled(source: str) -> tuple[frozenset[str], CodeType]:
    """Names that a template wants to be given, and its code. Models of one kind have the same template."""
    environment = _environment()
    tree = environment.parse(source)
    return frozenset(meta.find_undeclared_variables(tree)), environment.compile(tree)


def _text(error: Exception) -> str:
    """What it says, without halves of characters: it is told to the client."""
    return str(error).encode(errors="backslashreplace").decode() or "no reason is given"


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant said, for training; here it says nothing."""

    tags = {"generation"}  # noqa: RUF012 (the library's own way)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The marked part as if it were not."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format_: str) -> str:
    return datetime.now().astimezone().strftime(format_)


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    """Plain JSON: Jinja's own filter escapes HTML, which would put ``\\u003c`` into prompts."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)

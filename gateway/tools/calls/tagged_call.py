"""Calls whose arguments are texts between tags, made a JSON object as they come.

Of Qwen3-Coder, behind its mark: ``<function=get>``, for each argument ``<parameter=city>``, its value on lines of its
own, ``</parameter>``, then ``</function>``. Of GLM-4.5: the name, for each argument ``<arg_key>city</arg_key>`` and
``<arg_value>Paris</arg_value>``, then the mark behind calls.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping

from gateway.tools.calls.call_reader import CallReader, Functions
from gateway.tools.values.json_value import JsonStep
from gateway.tools.values.tag_value import TagValue, is_text
from gateway.tools.values.word import NameWord, Word

MAX_KEY_CHARACTERS = 256
_SPACE = " \t\n\r"


def open_function_tags(character: str, functions: Functions) -> CallReader | None:
    """Of Qwen3-Coder."""
    call = FunctionTags(functions)
    return call if call.feed(character) is JsonStep.TAKEN else None


def open_argument_tags(character: str, functions: Functions) -> CallReader | None:
    """Of GLM-4.5."""
    call = ArgumentTags(functions)
    return call if call.feed(character) is JsonStep.TAKEN else None


class TaggedCall(ABC):
    """What they have in common: the object that is made of keys and values. See `CallReader`."""

    key_end: str
    """Behind a key."""
    value_end: str
    is_on_lines: bool
    """Values stand on lines of their own."""
    tags: tuple[str, ...]
    """Between arguments: the one before a key, and the last of a call."""

    def __init__(self, functions: Functions) -> None:
        self.name = ""
        self.is_known = False
        self.is_complete = False
        self._functions = functions
        self._name = NameWord(functions)
        self._tag = Word(*self.tags)
        self._key = ""
        self._keys: set[str] = set()
        self._value: TagValue | None = None  # the last one that has begun
        self._pieces: list[str] = []  # of the object, without what that one has still to give
        self._wants = _NAME

    def feed(self, character: str) -> JsonStep:
        """See `CallReader`."""
        if self._wants == _VALUE:
            return self._in_value(character)
        if self._wants == _KEY:
            return self._in_key(character)
        if self._wants == _NAME:
            return self._in_name(character)
        if character in _SPACE and not self._tag.text:
            return JsonStep.TAKEN
        step = self._tag.feed(character)
        return self._behind_tag(self._tag.text) if step is JsonStep.LAST else step

    def run(self, text: str, begin: int) -> str:
        """See `CallReader`."""
        return self._value.run(text, begin) if self._value is not None and self._wants == _VALUE else ""

    def take_arguments(self) -> str:
        """See `CallReader`."""
        self._take_value()
        pieces, self._pieces = self._pieces, []
        return "".join(pieces)

    @abstractmethod
    def _behind_name(self, character: str) -> JsonStep:
        """Take the first character behind the name."""

    @abstractmethod
    def _behind_key(self) -> None:
        """What comes behind the text that ends a key."""

    @abstractmethod
    def _behind_tag(self, tag: str) -> JsonStep:
        """What comes behind a whole tag."""

    def _want_tag(self, *tags: str) -> None:
        self._wants, self._tag = _TAG, Word(*tags)

    def _want_key(self) -> None:
        self._wants, self._key = _KEY, ""

    def _in_name(self, character: str) -> JsonStep:
        step = self._name.feed(character)
        if step is not JsonStep.BEHIND:
            return step
        self.name, self.is_known = self._name.text, True
        self._pieces.append("{")
        return self._behind_name(character)

    def _in_key(self, character: str) -> JsonStep:
        self._key += character
        if not self._key.endswith(self.key_end):
            return JsonStep.TAKEN if len(self._key) <= MAX_KEY_CHARACTERS else JsonStep.WRONG
        key = self._key.removesuffix(self.key_end).strip(_SPACE)
        if not key or key in self._keys:
            return JsonStep.WRONG
        self._pieces.append(f"{', ' if self._keys else ''}{json.dumps(key, ensure_ascii=False)}: ")
        self._keys.add(key)
        self._key = key
        self._behind_key()
        return JsonStep.TAKEN

    def _want_value(self, *, is_string: bool | None = None) -> None:
        """Of the key that was read last; None: its schema says whether it is a string."""
        if is_string is None:
            is_string = is_text(self._schema_of(self._key))
        self._wants = _VALUE
        self._value = TagValue(self.value_end, is_string=is_string, is_on_lines=self.is_on_lines)

    def _in_value(self, character: str) -> JsonStep:
        assert self._value is not None, "it has begun"
        if self._value.feed(character) is JsonStep.LAST:
            self._take_value()
            self._want_tag(*self.tags)
        return JsonStep.TAKEN

    def _take_value(self) -> None:
        if self._value is not None:
            self._pieces += self._value.take()

    def _schema_of(self, key: str) -> object:
        schema = self._functions[self.name]
        properties = None if schema is None else schema.get("properties")
        return properties.get(key) if isinstance(properties, Mapping) else None

    def _close(self) -> JsonStep:
        self._pieces.append("}")
        self.is_complete = True
        return JsonStep.LAST


class FunctionTags(TaggedCall):
    """Of Qwen3-Coder."""

    key_end = ">"
    value_end = "</parameter>"
    is_on_lines = True
    tags = ("<parameter=", "</function>")

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)
        self._want_tag("<function=")

    def _behind_name(self, character: str) -> JsonStep:
        self._want_tag(*self.tags)
        return JsonStep.TAKEN if character == ">" else JsonStep.WRONG

    def _behind_key(self) -> None:
        self._want_value()

    def _behind_tag(self, tag: str) -> JsonStep:
        if tag == "</function>":
            return self._close()
        if tag == "<function=":
            self._wants = _NAME
        else:
            self._want_key()
        return JsonStep.TAKEN


class ArgumentTags(TaggedCall):
    """Of GLM-4.5."""

    key_end = "</arg_key>"
    value_end = "</arg_value>"
    is_on_lines = False
    tags = ("<arg_key>", "</tool_call>")

    def _behind_name(self, character: str) -> JsonStep:
        self._want_tag(*self.tags)
        return self.feed(character)

    def _behind_key(self) -> None:
        self._want_tag("<arg_value>")

    def _behind_tag(self, tag: str) -> JsonStep:
        if tag == "</tool_call>":
            return self._close()
        if tag == "<arg_value>":
            self._want_value()
        else:
            self._want_key()
        return JsonStep.TAKEN


_NAME = "name"
_TAG = "tag"
_KEY = "key"
_VALUE = "value"

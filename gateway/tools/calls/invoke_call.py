"""A call in tags of XML's kind, as MiniMax M2 and DeepSeek V3.2 write it, made a JSON object as it comes.

Behind its mark, ``<invoke name="``: ``get">``, for each argument ``<parameter name="city">Paris</parameter>``, then
``</invoke>``. DeepSeek's tags have a word of its own before their names, and an argument says whether it is a string:
``<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>``. Instead of such tags there may be a JSON object
of all arguments, which is how calls are forced.
"""

from __future__ import annotations

from gateway.tools.calls.call_reader import CallOpener, CallReader, Functions
from gateway.tools.calls.tagged_call import TaggedCall
from gateway.tools.values.json_value import JsonStep, JsonValue

_IS_STRING = {">": None, 'string="true">': True, 'string="false">': False}
"""What a tag says behind its key of the value; None for nothing."""


def invoke_call(word: str = "") -> CallOpener:
    """Calls whose tags have ``word`` before their names."""

    def open_call(character: str, functions: Functions) -> CallReader | None:
        call = InvokeTags(functions, word)
        return call if call.feed(character) is JsonStep.TAKEN else None

    return open_call


class InvokeTags(TaggedCall):
    """See `CallReader`. Fed with what comes behind the quotation mark before the name."""

    key_end = '"'
    is_on_lines = False

    def __init__(self, functions: Functions, word: str) -> None:
        self.value_end = f"</{word}parameter>"
        self._key_tag = f'<{word}parameter name="'
        self.tags = (self._key_tag, f"</{word}invoke>")
        super().__init__(functions)
        self._object: JsonValue | None = None
        self._is_open = False  # the tag with the name has ended

    def feed(self, character: str) -> JsonStep:
        """See `CallReader`."""
        if self._object is not None:
            return self._in_object(self._object, character)
        if character == "{" and self._is_open and not self._keys and not self._tag.text:
            self._object = JsonValue()
            return self._object.feed(character)  # `TaggedCall` has said the brace
        return super().feed(character)

    def run(self, text: str, begin: int) -> str:
        """See `CallReader`."""
        if self._object is None:
            return super().run(text, begin)
        run = self._object.run(text, begin)
        self._pieces.append(run)
        return run

    def _in_object(self, value: JsonValue, character: str) -> JsonStep:
        step = value.feed(character)
        if step is not JsonStep.WRONG:
            self._pieces.append(character)
            self.is_complete = step is JsonStep.LAST
        return step

    def _behind_name(self, character: str) -> JsonStep:
        self._want_tag(">")
        return JsonStep.TAKEN if character == '"' else JsonStep.WRONG

    def _behind_key(self) -> None:
        self._want_tag(*_IS_STRING)

    def _behind_tag(self, tag: str) -> JsonStep:
        if not self._is_open:
            self._is_open = True
            self._want_tag(*self.tags)
        elif tag == self._key_tag:
            self._want_key()
        elif tag in _IS_STRING:
            self._want_value(is_string=_IS_STRING[tag])
        else:
            return self._close()
        return JsonStep.TAKEN

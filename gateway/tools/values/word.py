"""Fixed texts and names of functions, read character by character."""

from __future__ import annotations

from collections.abc import Collection

from gateway.tools.values.json_value import JsonStep

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
"""Of functions, as OpenAI has them."""


class Word:
    """One of some texts, none of which begins another."""

    def __init__(self, *texts: str) -> None:
        self.text = ""
        """As far as it has come."""
        self._texts = texts

    def feed(self, character: str) -> JsonStep:
        """`JsonStep.LAST` where one of the texts is whole."""
        self.text += character
        if self.text in self._texts:
            return JsonStep.LAST
        return JsonStep.TAKEN if any(text.startswith(self.text) for text in self._texts) else JsonStep.WRONG


class NameWord:
    """A name among those that there are; what stands behind it is no part of one."""

    def __init__(self, names: Collection[str]) -> None:
        self.text = ""
        """As far as it has come."""
        self._names = names

    def feed(self, character: str) -> JsonStep:
        """`JsonStep.BEHIND` for the first character behind a name that there is."""
        if character not in NAME_CHARACTERS:
            return JsonStep.BEHIND if self.text in self._names else JsonStep.WRONG
        self.text += character
        return JsonStep.TAKEN if any(name.startswith(self.text) for name in self._names) else JsonStep.WRONG

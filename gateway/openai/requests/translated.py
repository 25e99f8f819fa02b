"""Requests of other APIs: conversations in other words, read as chats; faults are told in the words of the client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pydantic import ValidationError, model_validator

from gateway.openai.errors.errors import ApiError
from gateway.openai.objects.part import ApiObject, FieldConflictError, MissingFieldError, path_of, text_of
from gateway.openai.requests.schema import ChatCompletionRequest


class TranslatedRequest(ApiObject):
    """The body of one."""

    @abstractmethod
    def chat_fields(self) -> dict[str, Any]:
        """The fields of a `ChatCompletionRequest` that asks for the same; objects of its types are taken as they are.

        `FieldConflictError`, `MissingFieldError`, `UnsupportedFieldError` for what no chat can say, in the client's
        own words.
        """

    @abstractmethod
    def own_name(self, field: str) -> str:
        """What the client calls a field of the chat: ``messages[1].content`` may be its ``input[0].content``."""

    @cached_property
    def chat(self) -> ChatCompletionRequest:
        """The same request as a chat."""
        try:
            return ChatCompletionRequest.model_validate(self.chat_fields())
        except FieldConflictError as error:
            raise FieldConflictError(self.own_name(error.field), self._own_words(error.message, error.field)) from error
        except MissingFieldError as error:
            raise MissingFieldError(self.own_name(error.field)) from error
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            raise FieldConflictError(self.own_name(path_of(problem["loc"]) or ""), text_of(problem)) from error

    @contextmanager
    def in_own_words(self) -> Iterator[None]:
        """An `ApiError` about a field of the chat is raised about the client's own."""
        try:
            yield
        except ApiError as error:
            if error.param is None:
                raise
            message = self._own_words(error.message, error.param)
            own = self.own_name(error.param)
            raise ApiError(error.status, message, code=error.code, param=own, headers=error.headers) from error

    def _own_words(self, message: str, field: str) -> str:
        """A message names its field at its beginning, or in quotes."""
        own = self.own_name(field)
        if message.startswith(f"{field} "):
            message = own + message.removeprefix(field)
        return message.replace(repr(field), repr(own))

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here; else it is a chat once the rest has been found."""
        return True

    @model_validator(mode="after")
    def _is_a_chat(self) -> TranslatedRequest:
        """What cannot be said as one is refused with the body."""
        assert not self.is_whole or self.chat is not None
        return self

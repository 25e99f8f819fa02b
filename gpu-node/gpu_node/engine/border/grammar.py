"""What the engine asks of the language that an output has to be of: which tokens may come next."""

from __future__ import annotations

from typing import Protocol

from shared.messages.requests.payload import Constraint


class Matcher(Protocol):
    """Where one output stands in its language."""

    @property
    def allowed(self) -> bytes:
        """The tokens that may come next, as in `Draw.allowed`. Only while there is no ``error`` and it is not over."""
        ...

    @property
    def is_over(self) -> bool:
        """The output is whole, and nothing may follow."""
        ...

    @property
    def error(self) -> str:
        """Why it is unknown what may come next, or ``""``: the output left the language, or it is too complex."""
        ...

    @property
    def forced_token(self) -> int | None:
        """Where one text alone can follow, a token that it may begin with; else None. Asked as ``allowed`` is."""
        ...

    def take(self, token_id: int) -> None:
        """The output goes on with this token."""
        ...

    def ahead(self, token_id: int) -> Matcher:
        """Where the output stands if it goes on with a token that may come next; this one stays where it is."""
        ...


class Grammar(Protocol):
    """A language that is being compiled."""

    @property
    def is_ready(self) -> bool:
        """Whether it is compiled, or cannot be."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot be compiled, for the client; ``""`` where it is. To be asked once it is ready."""
        ...

    def matcher(self) -> Matcher:
        """At the beginning of an output. To be asked of a language that is ready and has no problem."""
        ...


class Grammars(Protocol):
    """Compiles languages beside the engine's steps: the first of a model takes longest, since its tokens are read."""

    def compile(self, model: str, constraint: Constraint) -> Grammar:
        """Begin to compile for the tokens of a model of the configuration; returns at once."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Until one is ready, but no longer."""
        ...

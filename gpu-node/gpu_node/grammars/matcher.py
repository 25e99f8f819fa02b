"""Where one output stands in its language, by llguidance."""

from __future__ import annotations

from llguidance import LLMatcher

from shared.grammars.problem import shortened


class LlMatcher:
    """As `gpu_node.engine.border.grammar.Matcher`. The mask of the next token is made when the last one is taken.

    So a language that is too complex for it is seen where that can be told, and not in the middle of a plan.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        """``matcher`` is this output's own, at its beginning."""
        self._matcher = matcher
        self._num_bytes = -(-vocab_size // 8)
        self._allowed = b""
        self._look()

    @property
    def allowed(self) -> bytes:
        """The tokens that may come next, a bit each."""
        assert self._allowed, "nothing may follow, or nobody knows what"
        return self._allowed

    @property
    def is_over(self) -> bool:
        """Nothing may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def error(self) -> str:
        """Why nobody can say what may follow."""
        return f"structured output: {shortened(self._matcher.get_error())}" if self._matcher.is_error() else ""

    def take(self, token_id: int) -> None:
        """The output goes on with this token; one that is not allowed is an `error`."""
        self._matcher.consume_token(token_id)
        self._look()

    def _look(self) -> None:
        """Its mask has 32 bits a word, and a word more than the vocabulary may need."""
        ends = self._matcher.is_stopped() or self._matcher.is_error()
        self._allowed = b"" if ends else self._matcher.compute_bitmask()[: self._num_bytes]

"""Where one output stands in its language, by llguidance."""

from __future__ import annotations

from collections.abc import Callable

from llguidance import LLMatcher, LLTokenizer

from shared.grammars.problem import shortened

MAX_FORCED_BYTES = 64
"""Of a text that alone can follow, what is looked at to find its first token."""


class LlMatcher:
    """As `gpu_node.engine.border.grammar.Matcher`. The mask of the next token is made when the last one is taken.

    So a language that is too complex for it is seen where that can be told, and not in the middle of a plan.
    """

    def __init__(self, matcher: LLMatcher, trie: LLTokenizer, fail: Callable[[], None]) -> None:
        """``matcher`` is this output's own, over the tokens of ``trie``; ``fail`` is called where it has an error."""
        self._matcher = matcher
        self._trie = trie
        self._fail = fail
        self._num_bytes = -(-trie.vocab_size // 8)
        self._allowed = b""
        self._ahead: tuple[int, LlMatcher] | None = None
        self._look()

    @property
    def allowed(self) -> bytes:
        """The tokens that may come next, a bit each."""
        assert self._allowed, "nothing may follow, or it is unknown what"
        return self._allowed

    @property
    def is_over(self) -> bool:
        """Nothing may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def error(self) -> str:
        """Why it is unknown what may follow."""
        return f"structured output: {shortened(self._matcher.get_error())}" if self._matcher.is_error() else ""

    @property
    def forced_token(self) -> int | None:
        """The longest token that the text begins with which alone can follow.

        Its last character is looked at only where it is all of it: tokens have it together with what comes behind.
        """
        text = self._matcher.compute_ff_bytes()[:MAX_FORCED_BYTES]
        if not text:
            return None
        found = self._trie.tokenize_bytes(text[:-1] or text)[0]
        return found if self._allows(found) else None

    def ahead(self, token_id: int) -> LlMatcher:
        """A copy behind this token; it takes some microseconds. Should the output go on with it, that is ready."""
        if self._ahead is None or self._ahead[0] != token_id:
            copy = self._matcher.deep_copy()
            copy.consume_token(token_id)
            self._ahead = token_id, LlMatcher(copy, self._trie, self._fail)
        return self._ahead[1]

    def take(self, token_id: int) -> None:
        """The output goes on with this token; one that is not allowed is an `error`."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == token_id:
            behind = ahead[1]
            self._matcher, self._allowed, self._ahead = behind._matcher, behind._allowed, behind._ahead
            return
        self._matcher.consume_token(token_id)
        self._look()

    def _allows(self, token_id: int) -> bool:
        return bool(self.allowed[token_id // 8] >> token_id % 8 & 1)

    def _look(self) -> None:
        """Its mask has 32 bits a word, and a word more than the vocabulary may need."""
        ends = self._matcher.is_stopped() or self._matcher.is_error()
        self._allowed = b"" if ends else self._matcher.compute_bitmask()[: self._num_bytes]
        if self._matcher.is_error():
            self._fail()

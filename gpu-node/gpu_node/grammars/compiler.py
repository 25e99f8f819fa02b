"""Compiles clients' constraints for the tokens of models, one after the other, beside the engine's steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from gpu_node.grammars.matcher import LlMatcher
from gpu_node.grammars.token_trie import token_trie
from shared.errors import OperatorError
from shared.grammars.definition import GrammarError, definition
from shared.grammars.limits import LIMITS
from shared.grammars.problem import shortened
from shared.messages.requests.payload import Constraint

MAX_GRAMMARS = 64
"""Compiled ones are kept for requests to come; the one that was asked for longest ago goes. Beyond there are those that
are still to be compiled, one a request that came."""


class LlGrammar:
    """As `gpu_node.engine.border.grammar.Grammar`."""

    def __init__(self, compiled: Future[tuple[LLMatcher, LLTokenizer]]) -> None:
        """``compiled``: at the beginning of any output, and the model's tokens."""
        self.compiled = compiled
        self.is_spent = False
        """An output has failed. All of a language share the states of its lexer, so that of any it may be the last."""

    @property
    def is_ready(self) -> bool:
        """Whether it is compiled, or cannot be."""
        return self.compiled.done()

    @property
    def problem(self) -> str:
        """Why it cannot be compiled. What is neither the constraint's fault nor the model's files' is raised."""
        error = self.compiled.exception()
        if error is None:
            return ""
        if isinstance(error, (GrammarError, OperatorError)):
            return f"structured output: {error}"
        raise error

    def matcher(self) -> LlMatcher:
        """At the beginning of an output."""
        matcher, trie = self.compiled.result()
        return LlMatcher(matcher.deep_copy(), trie, self._spend)

    def _spend(self) -> None:
        self.is_spent = True


class GrammarCompiler:
    """As `gpu_node.engine.border.grammar.Grammars`. What a model's tokens are is read when it is first asked for."""

    def __init__(self, path_of: Callable[[str], Path]) -> None:
        """``path_of`` a model's name: its files, looked for once; it may raise `OperatorError`."""
        self._path_of = path_of
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammars")
        self._paths: dict[str, Path] = {}  # of models of a configuration, which may have one in common
        self._tries: dict[Path, LLTokenizer] = {}
        self._grammars: OrderedDict[tuple[str, Constraint], LlGrammar] = OrderedDict()

    def compile(self, model: str, constraint: Constraint) -> LlGrammar:
        """Begin to compile, unless that has been done and is still of use; returns at once."""
        key = (model, constraint)
        found = self._grammars.get(key)
        if found is None or found.is_spent:
            found = self._grammars[key] = LlGrammar(self._thread.submit(self._compiled, model, constraint))
            self._forget()
        self._grammars.move_to_end(key)
        return found

    def _forget(self) -> None:
        """Grammars that are not ready stay: a request waits for each of them."""
        ready = [key for key, one in self._grammars.items() if one.is_ready]
        for key in ready[: max(0, len(self._grammars) - MAX_GRAMMARS)]:
            del self._grammars[key]

    def wait(self, timeout_s: float) -> None:
        """Until one of those that are compiled is ready, but no longer."""
        running = [one.compiled for one in self._grammars.values() if not one.is_ready]
        if running:
            wait(running, timeout_s, return_when=FIRST_COMPLETED)

    def close(self) -> None:
        """Compile no more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _compiled(self, model: str, constraint: Constraint) -> tuple[LLMatcher, LLTokenizer]:
        """In the thread."""
        trie = self._trie(model)
        matcher = LLMatcher(trie, definition(constraint), limits=LIMITS, log_level=0)
        if matcher.is_error():
            raise GrammarError(shortened(matcher.get_error()))
        return matcher, trie

    def _trie(self, model: str) -> LLTokenizer:
        if model not in self._paths:
            self._paths[model] = self._path_of(model)
        path = self._paths[model]
        if path not in self._tries:
            self._tries[path] = token_trie(path)
        return self._tries[path]

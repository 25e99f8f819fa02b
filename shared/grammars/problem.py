"""What is wrong with a constraint, found before anything is queued: an engine should never be the first to see it."""

from __future__ import annotations

from functools import cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from shared.grammars.definition import GrammarError, definition
from shared.grammars.limits import LIMITS
from shared.messages.requests.payload import Constraint

MAX_PROBLEM_CHARACTERS = 400


def problem_of(constraint: Constraint) -> str:
    """Why no output can be held to a client's constraint; ``""`` when it can. It may take some 100 ms, without the GIL.

    Named tokens (``<|name|>`` in Lark) are a problem too: a client writes texts, and what a model's control tokens are
    called is not known here.
    """
    try:
        matcher = LLMatcher(_byte_tokenizer(), definition(constraint), limits=LIMITS, log_level=0)
    except GrammarError as error:
        return shortened(str(error))
    if not matcher.is_error():
        matcher.compute_bitmask()
    if not matcher.is_error():
        return ""
    text = matcher.get_error()
    return "no text matches it" if text.startswith("NoExtension") else shortened(text)


def build_problem_of(constraint: Constraint) -> str:
    """Likewise for a constraint of our own making, which may name tokens by their ids: whether it can be built."""
    try:
        return shortened(LLMatcher.validate_grammar(definition(constraint), None, limits=LIMITS))
    except GrammarError as error:
        return shortened(str(error))


def shortened(text: str) -> str:
    """The first part of llguidance's message, which may quote all of a client's text and its own stack."""
    text = text.split("<backtrace>")[0].replace("<non-verbose/>", "").strip()
    return text if len(text) <= MAX_PROBLEM_CHARACTERS else text[:MAX_PROBLEM_CHARACTERS] + " ..."


class _Bytes:
    """A vocabulary of the 256 bytes and an end: enough to see whether any text is allowed."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([value]) for value in range(256)), b"end")
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _byte_tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes()))

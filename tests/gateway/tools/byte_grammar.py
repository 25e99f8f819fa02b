"""Constraints by a vocabulary of bytes, an end, and two control tokens."""

from __future__ import annotations

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from shared.grammars.definition import definition
from shared.grammars.limits import LIMITS
from shared.messages.requests.payload import Constraint

END = 256


class _Bytes:
    eos_token_id = END
    bos_token_id = None
    tokens = (*(bytes([value]) for value in range(256)), b"", b"", b"")
    special_token_ids = ()

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


TOKENIZER = LLTokenizer(TokenizerWrapper(_Bytes()))


def accepts(constraint: Constraint, token_ids: list[int]) -> bool:
    """Whether the tokens are a whole word of its language."""
    matcher = LLMatcher(TOKENIZER, definition(constraint), limits=LIMITS, log_level=0)
    assert matcher.get_error() == ""
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()

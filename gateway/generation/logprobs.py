"""Logprobs as OpenAI writes them: its chat and its completions do it in different shapes."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.models.tokenizer.tokenizer import PromptTokenizer
from gateway.openai.answers.answers import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob
from gateway.openai.answers.delta import ScoredToken

MIN_LOGPROB = -9999.0  # OpenAI's number for "next to impossible"; JSON has no infinity


class LogprobWriter:
    """Writes the logprobs of one answer; ``has_top`` says whether the most likely tokens were asked for too."""

    def __init__(self, tokenizer: PromptTokenizer, *, has_top: bool) -> None:
        self._tokenizer = tokenizer
        self._has_top = has_top

    def chat(self, scored: Sequence[ScoredToken]) -> ChatLogprobs:
        """The shape of ``/v1/chat/completions``."""
        return ChatLogprobs(
            content=[
                ChatTokenLogprob(
                    token=self._tokenizer.token_text(one.token_id),
                    logprob=_finite(one.score.logprob),
                    bytes=self._bytes(one.token_id),
                    top_logprobs=[self._top(token_id, logprob) for token_id, logprob in one.score.top],
                )
                for one in scored
            ]
        )

    def completion(self, scored: Sequence[ScoredToken]) -> CompletionLogprobs:
        """The shape of ``/v1/completions``."""
        return CompletionLogprobs(
            text_offset=[one.text_offset for one in scored],
            token_logprobs=[_finite(one.score.logprob) for one in scored],
            tokens=[self._tokenizer.token_text(one.token_id) for one in scored],
            top_logprobs=[self._by_text(one) for one in scored] if self._has_top else None,
        )

    def _by_text(self, one: ScoredToken) -> dict[str, float]:
        """The most likely tokens and, as OpenAI promises, the drawn one."""
        pairs = [*one.score.top, (one.token_id, one.score.logprob)]
        return {self._tokenizer.token_text(token_id): _finite(logprob) for token_id, logprob in pairs}

    def _top(self, token_id: int, logprob: float) -> TopLogprob:
        return TopLogprob(
            token=self._tokenizer.token_text(token_id), logprob=_finite(logprob), bytes=self._bytes(token_id)
        )

    def _bytes(self, token_id: int) -> list[int] | None:
        return list(self._tokenizer.bytes_of(token_id)) or None


def _finite(logprob: float) -> float:
    return logprob if logprob > MIN_LOGPROB else MIN_LOGPROB  # so is what is no number

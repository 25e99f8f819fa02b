"""Token counts of an answer in the words of the Responses API."""

from __future__ import annotations

from msgspec import UNSET

from gateway.openai.answers.answers import Usage
from gateway.responses.answer import InputTokensDetails, OutputTokensDetails, ResponseUsage


def counted(usage: Usage) -> ResponseUsage:
    """The same counts. Where thoughts are not told apart, no token is one."""
    cached, thoughts = usage.prompt_tokens_details, usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=UNSET if cached is UNSET else InputTokensDetails(cached_tokens=cached.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=0 if thoughts is UNSET else thoughts.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )

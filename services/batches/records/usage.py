"""Tokens of a batch, summed over its answers, whichever API wrote them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.messages.batches.batches import BatchUsage


class _InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class _OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0
    thinking_tokens: int = 0  # Anthropic's name


class _Usage(msgspec.Struct, frozen=True):
    """Chat and completions count prompts and completions; Responses and Messages input and output."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    prompt_tokens_details: _InputDetails = _InputDetails()
    input_tokens_details: _InputDetails = _InputDetails()
    completion_tokens_details: _OutputDetails = _OutputDetails()
    output_tokens_details: _OutputDetails = _OutputDetails()


class _Body(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Response(msgspec.Struct, frozen=True):
    body: _Body


class _Line(msgspec.Struct, frozen=True):
    response: _Response


_decoder = msgspec.json.Decoder(_Line)


def usage_of(lines: Iterable[bytes]) -> BatchUsage:
    """The sum over lines of answers (`services.batches.records.answer_line`)."""
    num_input = num_output = num_cached = num_thought = 0
    for line in lines:
        usage = _decoder.decode(line).response.body.usage or _Usage()
        # Anthropic counts what lay in a cache apart from the rest of the input
        num_input += usage.prompt_tokens + usage.input_tokens + (usage.cache_read_input_tokens or 0)
        num_output += usage.completion_tokens + usage.output_tokens
        num_cached += usage.prompt_tokens_details.cached_tokens + usage.input_tokens_details.cached_tokens
        num_cached += usage.cache_read_input_tokens or 0
        for thoughts in (usage.completion_tokens_details, usage.output_tokens_details):
            num_thought += thoughts.reasoning_tokens + thoughts.thinking_tokens
    return BatchUsage(
        input_tokens=num_input, output_tokens=num_output, cached_tokens=num_cached, reasoning_tokens=num_thought
    )

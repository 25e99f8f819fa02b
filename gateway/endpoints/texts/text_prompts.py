"""Texts and token ids in a request as the prompts that a model reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.endpoints.call import job_parts
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.tenants.turn_threads import TenantThreads


async def text_prompts(
    given: Sequence[str | list[int]],
    model: ServedModel,
    param: str,
    num_answer_tokens: int,
    encode: Callable[[str], list[int]],
    threads: TenantThreads,
) -> list[list[int]]:
    """Tokens of each text by ``encode``; ids are taken as they are, if the model has them.

    `ApiError` 400 for what is empty, or too long beside ``num_answer_tokens`` (which is told), before a text is
    tokenised.
    """
    for prompt in given:
        if not prompt:
            raise errors.invalid(f"the {param} is empty", param)
        if isinstance(prompt, str):
            job_parts.check_characters(model, len(prompt), param)
            continue
        if len(prompt) >= model.max_model_len:
            raise errors.context_length_exceeded(model.max_model_len, len(prompt), num_answer_tokens, param)
        job_parts.check_token_ids(model.tokenizer, prompt, param)

    def encoded() -> list[list[int]]:
        return [prompt if isinstance(prompt, list) else encode(prompt) for prompt in given]

    return await job_parts.tokenise(encoded, sum(len(prompt) for prompt in given if isinstance(prompt, str)), threads)

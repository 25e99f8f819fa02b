"""Queries and documents in a request as the prompts that a model which scores reads."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.endpoints.call import job_parts
from gateway.models.models import ServedModel
from gateway.models.score_form import Cut, Question
from gateway.openai.errors import errors
from gateway.openai.pooled.scores import ScoringRequest
from gateway.tenants.turn_threads import TenantThreads

MAX_REPEATED_CHARACTERS = 1 << 22
"""Of queries and instruction, counted once for each document: they are tokenised as often, in a second or two."""


async def score_prompts(
    body: ScoringRequest,
    pairs: Sequence[tuple[str, str]],
    model: ServedModel,
    document_tokens: int | None,
    param: str,
    threads: TenantThreads,
) -> list[list[int]]:
    """A prompt for each query and document. ``document_tokens``: the most of each that is read.

    `ApiError` 400 for what is empty, or too long to be read at all, before anything is tokenised. A document that is
    too long is cut where the request asks for it; else `gateway.endpoints.call.job_parts.max_tokens` refuses it.
    """
    form = model.score
    assert form is not None, "found by its task"
    if body.instruction is not None and not form.takes_instruction:
        raise errors.invalid("the prompt of this model has no place for an instruction", "instruction")
    instruction = form.instruction if body.instruction is None else body.instruction
    cut = Cut(document_tokens, _prompt_tokens(body, model))
    is_cut = cut != Cut()
    for query, document in pairs:
        if not query:
            raise errors.invalid("the query is empty", param)
        job_parts.check_characters(model, len(query) + (0 if is_cut else len(document)), param)
    num_repeated = sum(len(query) + len(instruction) for query, _ in pairs)
    if num_repeated > MAX_REPEATED_CHARACTERS:
        raise errors.invalid(
            f"the query is read with each document, {num_repeated} characters in all; at most "
            f"{MAX_REPEATED_CHARACTERS} are taken: send fewer documents at a time",
            param,
        )

    def encoded() -> list[list[int]]:
        return [form.tokens(model.tokenizer, Question(query, instruction), document, cut) for query, document in pairs]

    prompts = await job_parts.tokenise(encoded, num_repeated + sum(len(document) for _, document in pairs), threads)
    longest = max(map(len, prompts))
    if cut.prompt_tokens is not None and longest > cut.prompt_tokens:
        raise errors.invalid(
            f"without any document, the prompt has {longest} tokens, and {cut.prompt_tokens} are left for it",
            "truncate_prompt_tokens",
        )
    return prompts


def _prompt_tokens(body: ScoringRequest, model: ServedModel) -> int | None:
    """With room for the answer."""
    wanted, most = body.truncate_prompt_tokens, model.max_model_len - 1
    if wanted is None:
        return None
    return most if wanted == -1 else min(wanted, most)

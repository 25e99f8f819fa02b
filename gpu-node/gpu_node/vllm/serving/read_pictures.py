"""A request whose images have been read, as all books of a node with vLLM have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_node.vllm.words.border import EngineCore, PicturesRefusedError
from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import bare


def with_read_pictures(core: EngineCore, payload: Payload) -> tuple[Payload, tuple[Any, ...]]:
    """The request with the tokens that its images are and without their files, and what vLLM computes from them.

    `PicturesRefusedError` where they cannot be read, or are more tokens than the request was let in with.
    """
    read = core.read_pictures(payload)
    num_tokens = len(read.token_ids)
    if num_tokens > payload.num_prompt_tokens:
        raise PicturesRefusedError(
            f"the prompt has {num_tokens} tokens with its images here, and was let in with {payload.num_prompt_tokens}"
        )
    return replace(payload, prompt_token_ids=read.token_ids, pictures=bare(payload.pictures)), read.features

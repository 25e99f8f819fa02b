"""Whether a model thinks before it answers, where a client says so: by what its chat template lets clients set."""

from __future__ import annotations

from gateway.endpoints.chat_prompt import template_of
from gateway.models.models import ServedModel
from gateway.openai import errors
from gateway.openai.schema import ChatCompletionRequest

SWITCHES = ("enable_thinking", "thinking")
"""What templates call it: Qwen3's and most others; DeepSeek-V3.1's and Granite's."""


def with_thinking(
    chat: ChatCompletionRequest, model: ServedModel, *, is_wanted: bool | None, param: str
) -> ChatCompletionRequest:
    """The same request with the switch of the model's template set; None leaves it as it is.

    `ApiError` 400 for a model that always thinks and is not to. One that never does is not made to: it has nothing to
    say before its answer.
    """
    template = template_of(model, chat.messages, chat.told_tools)
    if is_wanted is None or template is None:
        return chat
    switch = next((name for name in SWITCHES if name in template.settings), None)
    if switch is not None:
        return chat.model_copy(update={"chat_template_kwargs": chat.chat_template_kwargs | {switch: is_wanted}})
    if model.reasoning is not None and not is_wanted:
        raise errors.invalid(f"the model {model.name!r} cannot be kept from thinking", param)
    return chat

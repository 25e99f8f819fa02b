"""Whether a model thinks before it answers, where a client says so: by what its chat template lets clients set."""

from __future__ import annotations

from gateway.endpoints.chat_prompt import template_of
from gateway.models.models import ServedModel
from gateway.openai import errors
from gateway.openai.effort import NO_EFFORT, USUAL_EFFORT
from gateway.openai.schema import ChatCompletionRequest

SWITCHES = ("enable_thinking", "thinking")
"""What templates call it: Qwen3's and most others; DeepSeek-V3.1's and Granite's."""
EFFORT = "reasoning_effort"
"""What templates call how much: gpt-oss's and others; a chat's field has the same name."""


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


def with_effort(chat: ChatCompletionRequest, model: ServedModel) -> ChatCompletionRequest:
    """The same request with its ``reasoning_effort`` said to the model's template; as `with_thinking` for ``none``.

    `ApiError` 400 for an effort that the template cannot be told, unless it is the usual one.
    """
    effort = chat.reasoning_effort
    if effort is None:
        return chat
    if effort == NO_EFFORT:
        return with_thinking(chat, model, is_wanted=False, param=EFFORT)
    template = template_of(model, chat.messages, chat.told_tools)
    if template is None or EFFORT in template.settings:
        return chat.model_copy(update={"chat_template_kwargs": {EFFORT: effort, **chat.chat_template_kwargs}})
    if effort == USUAL_EFFORT:
        return chat
    raise errors.invalid(f"how much the model {model.name!r} thinks cannot be set", EFFORT)

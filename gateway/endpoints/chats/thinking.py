"""Whether a model thinks before it answers, where a client says so: by what its chat template lets clients set."""

from __future__ import annotations

from dataclasses import replace

from gateway.endpoints.chats.chat_prompt import template_of
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.openai.requests.effort import NO_EFFORT, USUAL_EFFORT
from gateway.openai.requests.schema import ChatCompletionRequest
from gateway.reasoning.lead import lead_of
from gateway.reasoning.marks import ThoughtReading
from shared.messages.requests.payload import Constraint

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


def thought_reading(chat: ChatCompletionRequest, model: ServedModel) -> ThoughtReading | None:
    """How thoughts are told apart in its answers; None for a model that marks none."""
    template = template_of(model, chat.messages, chat.told_tools)
    if model.reasoning is None or template is None:
        return None
    settings = with_effort(chat, model).chat_template_kwargs
    return ThoughtReading(model.reasoning, template.leaves_open(model.reasoning, settings))


def with_lead(constraint: Constraint | None, chat: ChatCompletionRequest, model: ServedModel) -> Constraint | None:
    """A form is the answer's: the model may think before it, unless the request keeps it from that."""
    reading = None if constraint is None else thought_reading(chat, model)
    if constraint is None or reading is None:
        return constraint
    settings = with_effort(chat, model).chat_template_kwargs
    lead = lead_of(
        reading.marks,
        model.thought_markers,
        is_open=reading.is_open,
        thinks=not any(settings.get(switch) is False for switch in SWITCHES),
        has_header=not chat.is_call_forced,
    )
    return replace(constraint, lead=lead)

"""A conversation as the model reads it: by its chat template, to tokens."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.endpoints.chats.picture_turns import shown
from gateway.endpoints.chats.tool_turns import told_tools, turns
from gateway.models.chat_template import NO_SETTINGS, ChatTemplate, ChatTemplateError, SettingError, Settings
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.openai.errors.picture_errors import takes_no_images
from gateway.openai.requests.chat_messages import ChatMessage
from gateway.openai.requests.tools import Tool
from gateway.tools.hermes_prompt import with_hermes


def template_of(model: ServedModel, messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> ChatTemplate | None:
    """The one for conversations with functions where this is one, and the model has it."""
    if model.tool_template is not None and (tools or any(one.role == "tool" or one.tool_calls for one in messages)):
        return model.tool_template
    return model.template


def encode_messages(
    messages: Sequence[ChatMessage],
    model: ServedModel,
    tools: Sequence[Tool] = (),
    *,
    is_open: bool = True,
    settings: Settings = NO_SETTINGS,
) -> list[int]:
    """The conversation's tokens, by default up to the assistant's next turn; `ApiError` 400 without a template.

    ``settings`` are for the template.
    """
    template, tokenizer = template_of(model, messages, tools), model.tokenizer
    if template is None:
        raise errors.invalid(f"the model {model.name!r} has no chat template", "model", code="no_chat_template")
    # no text of a client becomes a control token
    own = {name: tokenizer.user_text(one) if isinstance(one, str) else one for name, one in settings.items()}
    spoken = turns(messages, tokenizer, with_none=template.knows_none, with_thinking=template.knows_thinking)
    told = told_tools(tools, tokenizer)
    if not template.takes_tools:
        spoken, told = with_hermes(spoken, told), []
    if model.pictures is not None:
        spoken = shown(spoken, template, model.pictures)
    try:
        rendered = template.render(spoken, tools=told or None, is_open=is_open, settings=own)
        ids = tokenizer.encode_chat(rendered)
    except SettingError as error:
        raise errors.invalid(str(error), "chat_template_kwargs") from error
    except ChatTemplateError as error:
        raise errors.invalid(
            f"the chat template of {model.name!r} refuses these messages: {error}", "messages", code="chat_template"
        ) from error
    num_images = sum(len(message.images) for message in messages)
    if num_images:
        _check_shown(ids, num_images, model)
    return ids


def _check_shown(ids: Sequence[int], num_images: int, model: ServedModel) -> None:
    """`ApiError` 400 unless each image has its place in the prompt: else another would be put there."""
    if model.pictures is None:
        raise takes_no_images(model.name, [])
    num_shown = ids.count(model.pictures.token_id)
    if num_shown != num_images:
        raise errors.invalid(
            f"the chat template of {model.name!r} shows {num_shown} of these {num_images} images",
            "messages",
            code="chat_template",
        )

from __future__ import annotations

from typing import Any

import pytest

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.models import ServedModel
from tests.gateway.tiny import TEMPLATE

USER = {"role": "user", "content": "hi"}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def test_messages_become_a_prompt_for_the_assistant() -> None:
    assert template(TEMPLATE).render([USER]) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}", "x\n"),
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{% for m in messages %}{% continue %}x{% endfor %}", ""),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ tools is none and documents is none }}", "True"),
    ],
)
def test_conventions(source: str, rendered: str) -> None:
    assert template(source).render([USER]) == rendered


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ missing.field }}", "'missing' is undefined"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ '\\ud800' }}", "UnicodeEncodeError.*surrogates not allowed"),
        ("{{ raise_exception('\\ud800') }}", r"^\\ud800$"),
        ("{{ raise_exception('') }}", "no reason is given"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
    ],
)
def test_what_a_template_refuses_or_may_not_do(source: str, why: str) -> None:
    with pytest.raises(ChatTemplateError, match=why):
        template(source).render([USER])


def test_an_invalid_template_is_refused_at_once() -> None:
    with pytest.raises(ChatTemplateError, match="Expected an expression"):
        template("{% if %}")
    with pytest.raises(ChatTemplateError, match=r"it cannot be compiled .RecursionError"):
        template("{{ " + "(" * 5000 + " }}")


def test_the_real_template_agrees_with_the_reference(real_model: ServedModel, reference: Any) -> None:
    assert real_model.template is not None
    tokenizer = real_model.tokenizer
    for messages in (
        [USER],
        [{"role": "system", "content": "Be brief."}, USER],
        [USER, {"role": "assistant", "content": " 你好 "}, {"role": "user", "content": "\n12  3\n"}],
    ):
        rendered = real_model.template.render(messages)
        assert rendered == reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        hidden = [message | {"content": tokenizer.user_text(message["content"])} for message in messages]
        assert tokenizer.encode_chat(real_model.template.render(hidden)) == tokenizer.encode(rendered)


@pytest.mark.parametrize(
    ("source", "knows_none"),
    [
        ("{% if message['content'] is not none %}{{ message['content'] }}{% endif %}", True),
        ('{% if message["content"] is none %}{% endif %}', True),
        ("{% if message.content is not none and message.content %}{% endif %}", True),
        ("{{ message.content if message.content is string else '' }}", False),
        ("{% if message.reasoning_content is not none %}{{ message.content }}{% endif %}", False),
        ("{% if tools is not none %}{{ message.content }}{% endif %}", False),
    ],
)
def test_whether_it_asks_for_content(source: str, knows_none: bool) -> None:
    assert template(source).knows_none is knows_none


@pytest.mark.parametrize(
    ("source", "takes_tools"),
    [
        (TEMPLATE, False),
        ("{{ messages[0].content }} tools", False),
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{% set tools = 5 %}{{ tools }}", False),
    ],
)
def test_whether_it_tells_of_functions(source: str, takes_tools: bool) -> None:
    assert template(source).takes_tools is takes_tools


def test_functions_are_data_of_a_template() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert template("{% for tool in tools %}{{ tool | tojson }}{% endfor %}").render([USER], tools=tools) == (
        '{"type": "function", "function": {"name": "f"}}'
    )

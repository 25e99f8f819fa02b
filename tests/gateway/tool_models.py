"""Tiny models of the families that call functions, each with a short template of its family's kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.tools.notation import NOTATIONS
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.gateway.memory_queue import Answer
from tests.gateway.tiny import ALPHABET, MERGED, write_model

MAX_MODEL_LEN = 4096
MARK = 258  # the id of a family's mark where it is a control token

HERMES = """{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}
    {{- 'Write <tool_call>...</tool_call>.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

MISTRAL = """{%- if tools %}{{ '[TOOLS] ' + (tools | tojson) + '[/TOOLS]' }}{% endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {%- if call.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
            {{- ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- ']' }}
    {%- elif message.role == 'tool' %}
        {{- '[RESULT] ' + message.tool_call_id + ' ' + message.content }}
    {%- else %}
        {{- '[' + message.role + '] ' + message.content }}
    {%- endif %}
{%- endfor %}"""

LLAMA3 = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if loop.first and tools %}
        {{- 'Answer in the format {"name": function name, "parameters": dictionary of its arguments}.\n' }}
        {%- for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}
    {%- endif %}
    {{- message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


QWEN3_CODER = """{%- if tools %}{{ '<tools>' + (tools | tojson) + '</tools>' }}{% endif %}
{%- for message in messages %}
    {{- '[' + message.role + ']' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for key, value in call.function.arguments | items %}
            {{- '<parameter=' + key + '>\\n' }}
            {{- (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
{%- endfor %}"""

GLM45 = """{%- if tools %}{{ '<tools>' + (tools | tojson) + '</tools>' }}{% endif %}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' + call.function.name + '\\n' }}
        {%- for key, value in call.function.arguments.items() %}
            {{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' }}
            {{- (value if value is string else value | tojson) + '</arg_value>\\n' }}
        {%- endfor %}
        {{- '</tool_call>' }}
    {%- endfor %}
{%- endfor %}"""

MISTRAL_ARGS = """{%- if tools %}{{ '[TOOLS] ' + (tools | tojson) + '[/TOOLS]' }}{% endif %}
{%- for message in messages %}
    {{- '[' + message.role + '] ' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}
    {%- endfor %}
{%- endfor %}"""

_DEEPSEEK = """{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
    {{- '<' + message.role + '>' }}{% if message.content is not none %}{{ message.content + '|' }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<｜tool▁call▁begin｜>BEFORE' + call.function.arguments + 'BEHIND<｜tool▁call▁end｜>' }}
    {%- endfor %}
{%- endfor %}"""
"""As their own, these take arguments for text, and ask whether there is content."""
DEEPSEEK_V31 = _DEEPSEEK.replace("BEFORE", "' + call.function.name + '<｜tool▁sep｜>").replace("BEHIND", "")
DEEPSEEK_V3 = _DEEPSEEK.replace("BEFORE", "function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n").replace(
    "BEHIND", "\\n```"
)

_SPOKEN = """{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
    {{- '<' + message.role + '>' + (message.content or '') }}
    {%- if message.role == 'tool' %}{{ message.tool_call_id }}{% endif %}
    {%- if message.tool_calls %}CALLS{% endif %}
{%- endfor %}"""
KIMI_K2 = _SPOKEN.replace(
    "CALLS",
    "{% for call in message.tool_calls %}{{ '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}"
    "{{ (call.function.arguments | tojson) + '<|tool_call_end|>' }}{% endfor %}",
)
HARMONY = """{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}
{%- if tools %}{{ '<|start|>developer<|message|>' + (tools | tojson) + '<|end|>' }}{% endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- if message.content and message.thinking %}{{ raise_exception('one of both') }}{% endif %}
        {%- set thoughts = message.content or message.thinking %}
        {%- if thoughts %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + thoughts + '<|end|>' }}{% endif %}
        {%- set function = message.tool_calls[0].function %}
        {{- '<|start|>assistant to=functions.' + function.name + '<|channel|>commentary json<|message|>' }}
        {{- (function.arguments | tojson) + '<|call|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + (message.tool_call_id or '') + '<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""
_PYTHON = (
    "{{ 'BEGIN[' }}{% for call in message.tool_calls %}{{ call.function.name + '(' }}"
    "{% for key, value in call.function.arguments | items %}{{ key + '=' + (value | tojson) }}{% endfor %}"
    "{{ ')' }}{% endfor %}{{ ']END' }}"
)
PYTHONIC = _SPOKEN.replace("CALLS", _PYTHON.replace("BEGIN", "<|python_start|>").replace("END", "<|python_end|>"))
LFM2 = _SPOKEN.replace("CALLS", _PYTHON.replace("BEGIN", "<|tool_call_start|>").replace("END", "<|tool_call_end|>"))
GRANITE = _SPOKEN.replace(
    "CALLS",
    """{{ '<|tool_call|>[' }}{% for call in message.tool_calls %}{{ '{"name": "' + call.function.name }}"""
    """{{ '", "arguments": ' + (call.function.arguments | tojson) + '}' }}{% endfor %}{{ ']' }}""",
)
GEMMA4 = _SPOKEN.replace(
    "CALLS",
    """{% for call in message.tool_calls %}{{ '<|tool_call>call:' + call.function.name + '{' }}"""
    """{% for key, value in call.function.arguments | items %}{{ key + ':<|"|>' }}{{ value }}{{ '<|"|>' }}"""
    """{% endfor %}{{ '}<tool_call|>' }}{% endfor %}""",
)

_INVOKES = (
    "{{ '<SECTION>\\n' }}{% for call in message.tool_calls %}"
    """{{ '<WORDinvoke name="' + call.function.name + '">\\n' }}"""
    "{% for key, value in call.function.arguments | items %}"
    """{{ '<WORDparameter name="' + key + '"SAYS>' + (value if value is string else value | tojson) }}"""
    "{{ '</WORDparameter>\\n' }}{% endfor %}{{ '</WORDinvoke>\\n' }}{% endfor %}{{ '</SECTION>' }}"
)
MINIMAX_M2 = _SPOKEN.replace(
    "CALLS", _INVOKES.replace("SECTION", "minimax:tool_call").replace("WORD", "").replace("SAYS", "")
)
DEEPSEEK_V32 = "{% set dsml = '｜DSML｜' %}" + _SPOKEN.replace(
    "CALLS",
    _INVOKES.replace("SECTION", "' + dsml + 'function_calls")
    .replace("WORD", "' + dsml + '")
    .replace("SAYS", """ string="' + ('true' if value is string else 'false') + '\""""),
)
DEEPSEEK_V4 = DEEPSEEK_V32.replace("function_calls", "tool_calls")
OLMO3 = _SPOKEN.replace(
    "CALLS",
    "{{ '<function_calls>' }}{% for call in message.tool_calls %}{{ call.function.name + '(' }}"
    "{% for key, value in call.function.arguments | items %}{{ key + '=' + (value | tojson) }}{% endfor %}"
    "{{ ')' }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}{{ '</function_calls>' }}",
)

TEMPLATES = {
    "hermes": HERMES,
    "qwen3_coder": QWEN3_CODER,
    "glm45": GLM45,
    "llama3_json": LLAMA3,
    "mistral": MISTRAL,
    "mistral_args": MISTRAL_ARGS,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "kimi_k2": KIMI_K2,
    "harmony": HARMONY,
    "pythonic": PYTHONIC,
    "lfm2": LFM2,
    "granite": GRANITE,
    "gemma4": GEMMA4,
    "minimax_m2": MINIMAX_M2,
    "deepseek_v32": DEEPSEEK_V32,
    "deepseek_v4": DEEPSEEK_V4,
    "olmo3": OLMO3,
}


def mark_of(family: str) -> str:
    """The first text of its calls that may be a control token: the mark of a call, or what stands before."""
    notation = NOTATIONS[family]
    if notation.is_section_on_lines and notation.section is not None:
        return next(iter(notation.controls), notation.section[0])
    return notation.begin


def write_family(folder: Path, family: str, *, has_control_mark: bool = False) -> dict[str, Any]:
    """A model of the family, as the configuration names it; its first mark may be a control token."""
    template = TEMPLATES[family]
    mark = mark_of(family)
    kind = TokenType.CONTROL if has_control_mark else TokenType.NORMAL
    path = write_model(
        folder / f"{family}-{has_control_mark}.gguf",
        template=template,
        context_length=MAX_MODEL_LEN,
        tokens=[*ALPHABET, "<|im_end|>", "<|im_start|>", mark if has_control_mark else "<unused>", *MERGED],
        kinds=[
            *[TokenType.NORMAL] * 256,
            TokenType.CONTROL,
            TokenType.CONTROL,
            kind,
            *[TokenType.NORMAL] * len(MERGED),
        ],
    )
    return {"name": family, "source": str(path), "max_model_len": MAX_MODEL_LEN}


def output_ids(text: str, mark: str = "") -> list[int]:
    """A text as byte tokens; where there is a mark, it is the control token."""
    if not mark:
        return list(text.encode())
    ids: list[int] = []
    for number, piece in enumerate(text.split(mark)):
        ids += [*([MARK] if number else []), *piece.encode()]
    return ids


def answering(*token_ids: list[int], finish_reason: str = "stop", size: int = 1) -> Answer:
    """Nodes that answer every request with these choices, in chunks of ``size`` tokens."""

    def answer(payload: Payload) -> list[Chunk]:
        chunks = []
        for choice, ids in enumerate(token_ids):
            ends = [*ids, *(payload.sampling.stop_token_ids[:1] if finish_reason == "stop" else [])]
            for start in range(0, len(ends), size):
                is_end = start + size >= len(ends)
                chunks.append(
                    Chunk(
                        payload.request_id,
                        payload.attempt,
                        start,
                        ends[start : start + size],
                        finish_reason if is_end else "",
                        choice=choice,
                        is_last=is_end and choice == len(token_ids) - 1,
                    )
                )
        return chunks

    return answer


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    """A function with these properties, all of them required."""
    schema = {
        "type": "object",
        "properties": parameters,
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


def written(tools: list[dict[str, Any]]) -> str:
    """Functions as `hermes_prompt` and templates write them, a line each."""
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in tools)

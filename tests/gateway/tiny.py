"""A tiny byte-level model file: every byte is a token, so tests can say in bytes what a model answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gguf import GGUFValueType, GGUFWriter

from shared.vocabulary.gguf_vocabulary import BYTE_OF_CHARACTER, TokenType

ALPHABET = sorted(BYTE_OF_CHARACTER, key=BYTE_OF_CHARACTER.__getitem__)  # token id == byte
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
END = 256
START = 257
MERGED = ["he", "ll", "hell", "hello", "Ġw"]
TOKENS = [*ALPHABET, "<|im_end|>", "<|im_start|>", "<tool>", *MERGED]
KINDS = [
    *[TokenType.NORMAL] * 256,
    TokenType.CONTROL,
    TokenType.CONTROL,
    TokenType.USER_DEFINED,
    *[TokenType.NORMAL] * len(MERGED),
]
TOOL = 258
HELLO = TOKENS.index("hello")

TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_made: dict[str, bytes] = {}
"""Files by what is asked of them: many tests want the same, and some of them again and again."""


def ids(text: str) -> list[int]:
    """Text as byte tokens, none merged."""
    return list(text.encode())


def write_model(
    path: Path,
    *,
    arch: str = "llama",
    template: str | None = TEMPLATE,
    tool_template: str | None = None,
    rerank_template: str | None = None,
    context_length: int = 64,
    **changed: Any,
) -> Path:
    """A model file without weights; ``changed`` replaces tokenizer fields, None leaves one out."""
    key = repr((arch, template, tool_template, rerank_template, context_length, sorted(changed.items())))
    if key in _made:
        path.write_bytes(_made[key])
        return path
    writer = GGUFWriter(path, arch)
    writer.add_context_length(context_length)
    fields: dict[str, Any] = {"model": "gpt2", "pre": "smollm", "eos": END, "bos": START, "kinds": KINDS} | changed
    if fields["model"] is not None:
        writer.add_tokenizer_model(fields["model"])
    if fields["pre"] is not None:
        writer.add_tokenizer_pre(fields["pre"])
    if fields["eos"] is not None:
        writer.add_key_value("tokenizer.ggml.eos_token_id", fields["eos"], GGUFValueType.get_type(fields["eos"]))
    if fields["bos"] is not None:
        writer.add_bos_token_id(fields["bos"])
    if "add_bos" in fields:
        writer.add_add_bos_token(fields["add_bos"])
    if "add_eos" in fields:
        writer.add_add_eos_token(fields["add_eos"])
    writer.add_token_list(fields.get("tokens", TOKENS))
    writer.add_token_types([int(kind) for kind in fields["kinds"]])
    writer.add_token_merges(fields.get("merges", MERGES))
    if template is not None:
        writer.add_chat_template(template)
    if tool_template is not None:
        writer.add_string("tokenizer.chat_template.tool_use", tool_template)
    if rerank_template is not None:
        writer.add_string("tokenizer.chat_template.rerank", rerank_template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _made[key] = path.read_bytes()
    return path

"""Model directories and their templates, as a gateway reads them; one of the files is fuzzed at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.hf_model import read_directory
from gateway.models.model_parts import ModelParts
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from shared.files.model_file import ModelFileError
from tests.fuzz.mutators import mutated_bytes
from tests.fuzz.scratch import rewritten, scratch
from tests.fuzz.target import Mutate, Target, refused, rule
from tests.fuzz.trees import json_mutator
from tests.gateway.hf_tiny import CHATML, INST, STYLES, write_directory

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of the library would take address space of their own

MESSAGES = [{"role": "user", "content": "hello <|im_end|> </s>"}, {"role": "assistant", "content": "w\u00f6rld"}]
_PROBES = ["", "hello world", "\x00\U0010ffff \u00e9", "<|im_end|><s></s>", " a\nb"]
_GENERATION = {"eos_token_id": [2, 1]}


def check_parts(parts: ModelParts) -> None:
    """A tokenizer that was taken encodes and decodes any text; what a client writes never becomes a control token."""
    tokenizer = parts.tokenizer
    for text in _PROBES:
        ids = tokenizer.encode(text)
        rule(all(0 <= token < tokenizer.vocab_size for token in ids), "tokens are the model's")
        tokenizer.decode(ids)
        _check_trust(tokenizer, text)
    if parts.template is not None:
        turns = [turn | {"content": tokenizer.user_text(turn["content"])} for turn in MESSAGES]
        rendered: list[str] = []
        if not refused(lambda: rendered.append(_rendered(parts.template, turns)), ChatTemplateError):
            tokenizer.encode_chat(rendered[0])


def _check_trust(tokenizer: PromptTokenizer, text: str) -> None:
    names = {token: tokenizer.token_text(token) for token in tokenizer.eos_ids}
    control = {token for token, name in names.items() if name != f"token_id:{token}"}
    written = tokenizer.encode_chat(tokenizer.user_text(text))
    rule(control.isdisjoint(written), "a client's text is no control token")


def _rendered(template: ChatTemplate | None, turns: Sequence[dict[str, str]]) -> str:
    assert template is not None
    return template.render(turns)


@cache
def _directory(style: str) -> Path:
    return write_directory(scratch() / f"hf-{style}", style, generation_config=_GENERATION)


def _checker(file_name: str, style: str) -> Callable[[bytes], bool]:
    def check(data: bytes) -> bool:
        directory = _directory(style)
        path = directory / file_name
        before = path.read_bytes() if path.is_file() else None
        found: list[ModelParts] = []
        try:
            rewritten(path, data)
            if refused(lambda: found.append(read_directory(directory)), ModelFileError):
                return False
        finally:
            path.unlink() if before is None else rewritten(path, before)
        check_parts(found[0])
        return True

    return check


def _file_target(name: str, file_name: str, style: str, share: float, mutate: Mutate = json_mutator) -> Target:
    def examples() -> Sequence[bytes]:
        styles = [style, f"{style}-bos"] if f"{style}-bos" in STYLES else [style]
        return [(_directory(one) / file_name).read_bytes() for one in styles]

    return Target(name, examples, _checker(file_name, style), mutate, share=share)


_WORDS = [b"{{", b"}}", b"{%", b"%}", b"for m in messages", b"endfor", b"if", b"else", b"endif", b"set x =", b"x", b"~"]
_WORDS += [b"messages", b"[0]", b".content", b"bos_token", b"|tojson", b"|length", b"macro a(b)", b"endmacro", b"loop"]
_WORDS += [b"raise_exception(1)", b"strftime_now('%Y')", b"namespace(a=1)", b"is defined", b"range(9)", b"-1", b"1.5"]
_WORDS += [b"**9", b"*9999", b"generation", b"endgeneration", b"break", b"(", b")", b"'a'", b"|join", b"__class__"]


def mutated_template(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """Words of the language put in or for others, else as bytes."""
    if rng.random() < 0.3:
        return mutated_bytes(data, corpus, rng)
    words = data.split(b" ")
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(words) + 1)
        words[start : start + rng.randrange(2)] = rng.choices(_WORDS, k=rng.randrange(4))
    return b" ".join(words)


def _templates() -> Sequence[bytes]:
    return [CHATML.encode(), INST.encode(), b"{{ 1 }}{% set x = namespace(a=1) %} {{ x.a ~ messages[0] | tojson }}"]


def _check_template(data: bytes) -> bool:
    """A template is refused when it is read, or refuses messages when it is asked; or gives a text."""
    found: list[str] = []
    text = data.decode("utf-8", "replace")
    if refused(lambda: found.append(ChatTemplate(text, bos_token="<s>").render(MESSAGES)), ChatTemplateError):
        return False
    rule(isinstance(found[0], str), "a prompt is text")
    return True


TARGETS = [
    _file_target("tokenizer.json", "tokenizer.json", "byte-level", 1.5),
    _file_target("tokenizer.json of Unigram", "tokenizer.json", "unigram", 1),
    _file_target("tokenizer.json with metaspaces", "tokenizer.json", "metaspace", 1),
    _file_target("tokenizer_config.json", "tokenizer_config.json", "metaspace", 1),
    _file_target("config.json at a gateway", "config.json", "unigram", 0.7),
    _file_target("generation_config.json", "generation_config.json", "metaspace", 0.7),
    Target("chat templates", _templates, _check_template, mutated_template, share=5),
]

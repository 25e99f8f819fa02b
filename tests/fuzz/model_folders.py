"""Hugging Face folders from others: files cut, lost, renamed, another model's, or at odds with each other.

An input says what happens to a good folder, as JSON: a style, and steps that each change one file. So it can be
replayed, and looked at. Both readers are asked: what a gateway reads (tokenizer, template) and what a node does
(config.json).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from gateway.models.hf_model import read_directory
from gateway.models.model_parts import ModelParts
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint, open_checkpoint
from gpu_node.models.config import Family
from shared.files.model_file import ModelFileError
from tests.fuzz.model_weights import hf_config
from tests.fuzz.scratch import scratch
from tests.fuzz.target import BrokenRuleError, Target, refused, rule
from tests.fuzz.tokenizer_files import check_parts
from tests.gateway.hf_tiny import STYLES, size_of, write_directory

Step = list[Any]

FILES = ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json", "chat_template.jinja"]
OTHERS = [
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "Tokenizer.json",
]
MAX_STEPS = 4
MAX_BUILT_LAYERS = 64

_TEMPLATES = [
    "",
    "{{ messages }}",
    "{{ messages[0]['content'] }}{% for",
    "{% for message in messages %}{{ message.content }}{% endfor %}",
    "{{ raise_exception('no') }}",
    "{{ undefined_name.attribute }}",
    "{% for i in range(999999999) %}x{% endfor %}",
    "{{ 'a' * 99999999999 }}",
    "{{ messages | map(attribute='nothing') | join }}",
    "{% import 'os' as os %}",
    "{% include 'tokenizer.json' %}",
    "{{ ''.__class__.__mro__ }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set x = 1 / 0 %}",
    "\x00\ud7ff",
]
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    3,
    500,
    1 << 40,
    1.5,
    1e400,
    "",
    "<s>",
    "</s>",
    "llama",
    "gpt2",
    "nothing",
]
_VALUES += [[], [2], [[1]], {}, {"content": "<s>"}, {"rope_type": "yarn"}]
_KEYS = {
    "config.json": [
        "vocab_size",
        "eos_token_id",
        "bos_token_id",
        "pad_token_id",
        "model_type",
        "architectures",
        "max_position_embeddings",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "tie_word_embeddings",
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "quantization_config",
        "torch_dtype",
        "text_config",
        "n_positions",
        "n_embd",
    ],
    "tokenizer_config.json": [
        "tokenizer_class",
        "eos_token",
        "bos_token",
        "unk_token",
        "add_bos_token",
        "add_eos_token",
        "chat_template",
        "model_max_length",
        "added_tokens_decoder",
        "legacy",
    ],
    "generation_config.json": ["eos_token_id", "bos_token_id", "temperature"],
    "tokenizer.json": ["model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "version"],
}


# --- folders --------------------------------------------------------------------------------------------------------


@cache
def _good(style: str) -> Path:
    """One that gateways and nodes take."""
    make, _ = STYLES[style]
    config = hf_config(Family.LLAMA) | {"max_position_embeddings": 64, "vocab_size": size_of(make())}
    path = scratch() / f"folder-{style}"
    return write_directory(path, style, config=config, generation_config={"eos_token_id": [2, 1]})


def _made(recipe: dict[str, Any]) -> Path:
    """The folder that a recipe makes; steps that cannot be taken are left out."""
    folder = scratch() / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_good(recipe["style"]), folder)
    for step in recipe["steps"]:
        _STEPS[step[0]](folder, *step[1:])
    return folder


def _lose(folder: Path, name: str) -> None:
    _cleared(folder / name)


def _cut(folder: Path, name: str, share: float) -> None:
    if (data := _data(folder / name)) is not None:
        (folder / name).write_bytes(data[: int(len(data) * share)])


def _rename(folder: Path, name: str, new: str) -> None:
    if name != new and (folder / name).is_file():
        _cleared(folder / new)
        (folder / name).rename(folder / new)


def _take_from(folder: Path, name: str, style: str) -> None:
    """The file of another model."""
    if (data := _data(_good(style) / name)) is not None:
        _cleared(folder / name)
        (folder / name).write_bytes(data)


def _exchange(folder: Path, name: str, other: str) -> None:
    first, second = _data(folder / name), _data(folder / other)
    if first is not None and second is not None:
        (folder / name).write_bytes(second)
        (folder / other).write_bytes(first)


def _set(folder: Path, name: str, key: str, value: Any) -> None:
    if (data := _data(folder / name)) is None:
        return
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):  # no document any more
        return
    if isinstance(values, dict):
        (folder / name).write_text(json.dumps(values | {key: value}))


def _write(folder: Path, name: str, text: str) -> None:
    _cleared(folder / name)
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))


def _put_folder(folder: Path, name: str) -> None:
    _cleared(folder / name)
    (folder / name).mkdir()


def _put_loop(folder: Path, name: str) -> None:
    _cleared(folder / name)
    (folder / name).symlink_to(name)


_STEPS: dict[str, Callable[..., None]] = {
    "lose": _lose,
    "cut": _cut,
    "rename": _rename,
    "take": _take_from,
    "exchange": _exchange,
    "set": _set,
    "write": _write,
    "folder": _put_folder,
    "loop": _put_loop,
}


def _data(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _cleared(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- inputs and oracle ----------------------------------------------------------------------------------------------


def mutated_recipe(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """Another style, and up to `MAX_STEPS` steps."""
    steps = [_random_step(rng) for _ in range(rng.randint(1, MAX_STEPS))]
    return json.dumps({"style": rng.choice(list(STYLES)), "steps": steps}).encode()


def _random_step(rng: Random) -> Step:
    name = rng.choice(FILES)
    match rng.randrange(10):
        case 0:
            return ["lose", name]
        case 1:
            return ["cut", name, rng.random()]
        case 2:
            return ["rename", name, rng.choice(FILES + OTHERS)]
        case 3:
            return ["take", name, rng.choice(list(STYLES))]
        case 4:
            return ["exchange", name, rng.choice(FILES)]
        case 5:
            return [
                "write",
                rng.choice(FILES),
                rng.choice(["", "{}", "[]", "null", "\ufeff{}", '"\\ud800"', "[" * 5000]),
            ]
        case 6:
            return ["write", "chat_template.jinja", rng.choice(_TEMPLATES)]
        case 7:
            return [rng.choice(["folder", "loop"]), name]
        case _:
            name = rng.choice(list(_KEYS))
            return ["set", name, rng.choice(_KEYS[name]), rng.choice(_VALUES + _TEMPLATES)]


def _recipe(data: bytes) -> dict[str, Any]:
    """Coverage-guided mutations bring bytes that are no recipe: those stand for the one that they begin."""
    try:
        recipe = json.loads(data)
        known = isinstance(recipe, dict) and recipe["style"] in STYLES and isinstance(recipe["steps"], list)
        return recipe if known else {"style": "byte-level", "steps": []}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"style": "byte-level", "steps": []}


def _check_at_gateway(data: bytes) -> bool:
    folder = _made(_recipe(data))
    found: list[ModelParts] = []
    if _refused_by_name(folder, lambda: found.append(read_directory(folder))):
        return False
    check_parts(found[0])
    return True


def _check_at_node(data: bytes) -> bool:
    folder = _made(_recipe(data))
    found: list[Checkpoint] = []
    if _refused_by_name(folder, lambda: found.append(open_checkpoint(folder))):
        return False
    if found[0].config.num_layers <= MAX_BUILT_LAYERS:
        build_program(found[0].config)
    return True


def _refused_by_name(folder: Path, read: Callable[[], object]) -> bool:
    """An operator finds the file by the text alone."""
    texts: list[str] = []

    def noted() -> None:
        try:
            read()
        except ModelFileError as error:
            texts.append(str(error))
            raise

    if not refused(noted, ModelFileError):
        return False
    if str(folder) not in texts[0]:
        raise BrokenRuleError(f"the error names no file of the folder: {texts[0]}")
    rule("\n" not in texts[0], "an error is one line")
    return True


def _examples() -> Sequence[bytes]:
    return [json.dumps({"style": style, "steps": []}).encode() for style in STYLES]


TARGETS = [
    Target(
        "Hugging Face folders at a gateway", _examples, _check_at_gateway, mutated_recipe, is_guided=False, share=1.5
    ),
    Target("Hugging Face folders at a node", _examples, _check_at_node, mutated_recipe, is_guided=False, share=1.5),
]

"""Model files as a node reads them, GGUF and safetensors; and what a gateway reads of a GGUF file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from gateway.models.gguf_model import read_gguf
from gateway.models.model_parts import ModelParts
from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint, open_checkpoint
from gpu_node.models.config import Family
from gpu_node.models.weights.weights import load_weights
from shared.files.gguf_file import GgufFile, open_gguf
from shared.files.model_file import ModelFileError
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.fuzz.gguf_bytes import parsed, written
from tests.fuzz.model_weights import config_of, gguf_model, hf_config, safetensors_model, sealed
from tests.fuzz.mutators import MAX_BYTES, mutated_bytes
from tests.fuzz.scratch import rewritten, scratch
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.tokenizer_files import check_parts
from tests.fuzz.trees import JSON_VALUES, MSGPACK_VALUES, json_mutator, mutated_tree
from tests.gateway.tiny import MERGES, write_model

_GGUF_FAMILIES = (Family.LLAMA, Family.MIXTRAL, Family.GPT2)
_HF_FAMILIES = (Family.LLAMA, Family.QWEN2, Family.MIXTRAL, Family.OPT, Family.GPT2)
MAX_BUILT_LAYERS = 64
"""Programs of more are not built here: it takes a millisecond a layer."""


# --- mutations ------------------------------------------------------------------------------------------------------


def mutated_gguf(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """The file as a tree, with lengths that hold; else as bytes, mostly of the header."""
    if rng.random() < 0.5:
        return mutated_bytes(data, corpus, rng)
    try:
        tree = parsed(data)
        part = rng.choice(["keys", "keys", "tensors"])
        return written(tree | {part: mutated_tree(tree[part], rng, MSGPACK_VALUES)})[:MAX_BYTES]
    except (struct.error, KeyError, ValueError, TypeError, AttributeError, OverflowError):  # it is not one any more
        return mutated_bytes(data, corpus, rng)


def mutated_safetensors(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """The header as a document, with the length that it has; else as bytes."""
    if rng.random() < 0.4:
        return mutated_bytes(data, corpus, rng)
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        return sealed(mutated_tree(header, rng, JSON_VALUES), data[8 + length :])[:MAX_BYTES]
    except (ValueError, RecursionError):
        return mutated_bytes(data, corpus, rng)


# --- oracles --------------------------------------------------------------------------------------------------------


def _check_header(data: bytes) -> bool:
    """Every tensor lies in the file, and all that the metadata say came from it."""
    found: list[GgufFile] = []
    path = rewritten(scratch() / "header.gguf", data)
    if refused(lambda: found.append(open_gguf(path)), ModelFileError):
        return False
    for tensor in found[0].tensors.values():
        rule(tensor.data.nbytes <= len(data), "a tensor lies in its file")
        tensor.data.sum()
    return True


def _check_gguf_model(data: bytes) -> bool:
    path = rewritten(scratch() / "model.gguf", data)
    return not refused(lambda: _load(open_checkpoint(path)), ModelFileError)


def _load(checkpoint: Checkpoint) -> None:
    """As an executor does."""
    if checkpoint.config.num_layers <= MAX_BUILT_LAYERS:
        load_weights(checkpoint, build_program(checkpoint.config))


def _check_gguf_tokenizer(data: bytes) -> bool:
    found: list[ModelParts] = []
    path = rewritten(scratch() / "tokenizer.gguf", data)
    if refused(lambda: found.append(read_gguf(path)), ModelFileError):
        return False
    check_parts(found[0])
    return True


@cache
def _hf_directory(family: Family) -> Path:
    folder = scratch() / f"weights-{family}"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hf_config(family)))
    (folder / "model.safetensors").write_bytes(safetensors_model(family))
    return folder


@cache
def _program(family: Family) -> Program:
    return build_program(config_of(family))


def _safetensors_checker(family: Family) -> Callable[[bytes], bool]:
    def check(data: bytes) -> bool:
        directory = _hf_directory(family)
        rewritten(directory / "model.safetensors", data)
        checkpoint = Checkpoint(directory, config_of(family), None)
        return not refused(lambda: load_weights(checkpoint, _program(family)), ModelFileError)

    return check


def _check_config(data: bytes) -> bool:
    folder = scratch() / "config"
    folder.mkdir(exist_ok=True)
    rewritten(folder / "config.json", data)
    found: list[Checkpoint] = []
    if refused(lambda: found.append(open_checkpoint(folder)), ModelFileError):
        return False
    if found[0].config.num_layers <= MAX_BUILT_LAYERS:
        build_program(found[0].config)
    return True


def _check_index(data: bytes) -> bool:
    directory = _hf_directory(Family.OPT)
    single, shard = directory / "model.safetensors", directory / "model-1.safetensors"
    single.unlink(missing_ok=True)
    if not shard.is_file():
        shard.write_bytes(safetensors_model(Family.OPT))
    index = rewritten(directory / "model.safetensors.index.json", data)
    checkpoint = Checkpoint(directory, config_of(Family.OPT), None)
    try:
        return not refused(lambda: load_weights(checkpoint, _program(Family.OPT)), ModelFileError)
    finally:
        index.unlink()


# --- examples -------------------------------------------------------------------------------------------------------


def _gguf_models() -> Sequence[bytes]:
    return [gguf_model(family) for family in _GGUF_FAMILIES]


def _gguf_tokenizers() -> Sequence[bytes]:
    few = [*"helo ".replace(" ", "\u0120"), "he", "ll", "hell", "hello", "<|im_end|>", "<|im_start|>", "<tool>"]
    kinds = [*[TokenType.NORMAL] * 9, TokenType.CONTROL, TokenType.CONTROL, TokenType.USER_DEFINED]
    small = {"tokens": few, "kinds": kinds, "merges": MERGES[:4], "eos": 9, "bos": 10}
    changes: list[Mapping[str, Any]] = [{}, small | {"pre": "qwen2"}, small | {"pre": "llama-bpe"}]
    changes += [small | {"add_bos": False, "template": None}]
    return [write_model(scratch() / "example.gguf", **change).read_bytes() for change in changes]


def _configs() -> Sequence[bytes]:
    return [json.dumps(hf_config(family)).encode() for family in _HF_FAMILIES]


def _indexes() -> Sequence[bytes]:
    names = json.loads(safetensors_model(Family.OPT)[8:].split(b"}}")[0] + b"}}")
    places = {name: "model-1.safetensors" for name in names if name != "__metadata__"}
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": places}).encode()]


def _safetensors_target(name: str, family: Family, share: float) -> Target:
    check = _safetensors_checker(family)
    return Target(name, lambda: [safetensors_model(family)], check, mutated_safetensors, share=share)


TARGETS = [
    Target("GGUF headers", _gguf_models, _check_header, mutated_gguf, share=15),
    Target("GGUF models", _gguf_models, _check_gguf_model, mutated_gguf, share=3),
    Target("GGUF tokenizers", _gguf_tokenizers, _check_gguf_tokenizer, mutated_gguf, share=2),
    _safetensors_target("safetensors", Family.LLAMA, 5),
    _safetensors_target("safetensors of GPT-2", Family.GPT2, 3),
    Target("safetensors indexes", _indexes, _check_index, json_mutator, share=1.5),
    Target("config.json at a node", _configs, _check_config, json_mutator, share=5),
]

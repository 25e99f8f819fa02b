"""What a model's files say about lengths, read without weights: the header of a GGUF file, or ``config.json``.

A node reads the same keys with all others in `gpu_node.models`; a test holds that both find the same numbers.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path

from shared.files.encoder import has_gpt2_keys, is_encoder_file, is_encoder_type, max_length, text_positions
from shared.files.gguf_file import open_gguf
from shared.files.model_file import ModelFileError
from shared.files.model_length import KvSizes, ModelSizes
from shared.files.vision import text_values

_CONFIG_FILE = "config.json"
_QWEN3_HEAD_DIM = 128  # what `transformers` gives a Qwen 3 that does not say it


def read_context_length(path: Path) -> int:
    """Tokens that the model at ``path`` was trained for; `ModelFileError` names file and key where it is not said."""
    return _open(path).context_length


def read_is_encoder(path: Path) -> bool:
    """Whether all of a text is read at once (`shared.files.encoder`)."""
    return _open(path).is_encoder


def read_sizes(path: Path) -> ModelSizes:
    """Sizes of the model at ``path``; `ModelFileError` names file and key where one is missing or makes no sense."""
    found = _open(path)
    context_length = found.context_length
    if found.is_vocabulary:
        return ModelSizes(context_length, None)
    num_heads = found.count("heads")
    own_dim = _QWEN3_HEAD_DIM if found.is_qwen3_directory else found.count("hidden") // num_heads
    kv = KvSizes(
        num_layers=found.count("layers"),
        num_kv_heads=found.count("kv_heads", default=num_heads),
        head_dim=found.count("head_dim", default=own_dim),
    )
    return ModelSizes(context_length, kv, found.is_encoder)


def _open(path: Path) -> _Counts:
    if not path.is_dir():
        metadata = open_gguf(path).metadata
        arch = metadata.get("general.architecture")
        return _Counts(metadata, {name: f"{arch}.{key}" for name, key in _GGUF_KEYS.items()}, path)
    file = path / _CONFIG_FILE
    try:
        values = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelFileError(f"{file}: expected a mapping at the top, found {type(values).__name__}")
    values = text_values(values)
    return _Counts(values, _GPT2_KEYS if has_gpt2_keys(values) else _OTHER_KEYS, file)


_GGUF_KEYS = {
    "context": "context_length",
    "layers": "block_count",
    "hidden": "embedding_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}
_OTHER_KEYS = {
    "context": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
_GPT2_KEYS = _OTHER_KEYS | {"context": "n_positions", "layers": "n_layer", "hidden": "n_embd", "heads": "n_head"}


class _Counts:
    """Whole numbers above 0 of one file, by what they count."""

    def __init__(self, values: Mapping[str, object], keys: Mapping[str, str], path: Path) -> None:
        self._values = values
        self._keys = keys
        self._path = path

    @property
    def context_length(self) -> int:
        num_positions = self.count("context")
        if not self.is_encoder:
            return num_positions
        num_tokens = text_positions(self._values, num_positions) if self._is_directory else num_positions
        if num_tokens < 1:
            raise ModelFileError(
                f"{self._path}: {self._keys['context']} {num_positions} leaves no position for a token"
            )
        return max_length(num_tokens)

    @property
    def is_encoder(self) -> bool:
        return is_encoder_type(self._values.get("model_type")) if self._is_directory else is_encoder_file(self._values)

    @property
    def _is_directory(self) -> bool:
        return self._path.name == _CONFIG_FILE

    @property
    def is_vocabulary(self) -> bool:
        return self._values.get(self._keys["heads"]) is None

    @property
    def is_qwen3_directory(self) -> bool:
        return self._values.get("model_type") == "qwen3"

    def count(self, name: str, default: int | None = None) -> int:
        key = self._keys[name]
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelFileError(f"{self._path}: {key} is {reprlib.repr(value)}, expected a positive int")
        return value

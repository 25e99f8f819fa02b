"""Numbers that define a model of the Llama family, read from the metadata of a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gguf import GGUFReader

from shared.model_file import ModelFileError

ARCHITECTURE = "llama"

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of a Llama model; names follow what they count, not any file format."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rope_theta: float
    rms_norm_epsilon: float
    tied_embedding: bool
    """The logits are made with the embedding itself."""
    eos_token_ids: frozenset[int]


class Metadata:
    """Typed look-ups in a GGUF file; what is missing or of another type is a `ModelFileError` naming file and key."""

    def __init__(self, reader: GGUFReader, path: Path) -> None:
        self._reader = reader
        self._path = path

    def error(self, text: str) -> ModelFileError:
        """An error about this file."""
        return ModelFileError(f"{self._path}: {text}")

    def text(self, key: str, default: str) -> str:
        """A string, or ``default`` where there is none."""
        value = self._value(key)
        if not isinstance(value, str | None):
            raise self.error(f"{key} is {value!r}, expected text")
        return default if value is None else value

    def number(self, key: str, kind: type[Number], default: Number | None = None) -> Number:
        """A number above 0, or ``default`` where there is none."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, kind) or not value > 0:
            raise self.error(f"{key} is {value!r}, expected a positive {kind.__name__}")
        return value

    def token_id(self, key: str) -> int | None:
        """A token id, or None where there is none."""
        value = self._value(key)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise self.error(f"{key} is {value!r}, expected a token id")
        return value

    def _value(self, key: str) -> object:
        found = self._reader.fields.get(key)
        return None if found is None else found.contents()


def read_config(reader: GGUFReader, path: Path) -> ModelConfig:
    """The configuration in an open GGUF file; `ModelFileError` where it is incomplete or not supported."""
    metadata = Metadata(reader, path)
    architecture = metadata.text("general.architecture", default="")
    if architecture != ARCHITECTURE:
        raise metadata.error(f"architecture {architecture!r} is not supported; {ARCHITECTURE!r} is")
    hidden_size = metadata.number("llama.embedding_length", int)
    num_heads = metadata.number("llama.attention.head_count", int)
    num_kv_heads = metadata.number("llama.attention.head_count_kv", int, default=num_heads)
    head_dim = metadata.number("llama.attention.key_length", int, default=hidden_size // num_heads)
    if num_heads % num_kv_heads:
        raise metadata.error(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    if head_dim % 2 or metadata.number("llama.rope.dimension_count", int, default=head_dim) != head_dim:
        raise metadata.error("rotary embedding of a part of a head is not supported")
    if metadata.text("llama.rope.scaling.type", default="none") != "none":
        raise metadata.error("scaled rotary embeddings are not supported")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        raise metadata.error("tensor token_embd.weight is missing")
    eos_token_ids = (metadata.token_id(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
    return ModelConfig(
        num_layers=metadata.number("llama.block_count", int),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=metadata.number("llama.feed_forward_length", int),
        vocab_size=int(tensors["token_embd.weight"].shape[-1]),  # GGUF names the fastest dimension first
        context_length=metadata.number("llama.context_length", int),
        rope_theta=metadata.number("llama.rope.freq_base", float, default=10_000.0),
        rms_norm_epsilon=metadata.number("llama.attention.layer_norm_rms_epsilon", float),
        tied_embedding="output.weight" not in tensors,
        eos_token_ids=frozenset(token for token in eos_token_ids if token is not None),
    )

"""A model on disk, GGUF file or directory in Hugging Face layout, as far as it can be read without tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.hf_config import read_hf_config

if TYPE_CHECKING:
    from shared.files.gguf_file import GgufFile


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a model lies and what it is; `gpu_node.models.weights.weights` reads its weights."""

    path: Path
    config: ModelConfig
    gguf: GgufFile | None
    """The open GGUF file; None for a directory."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Read the configuration of the model at ``path``; `ModelFileError` says what cannot be used."""
    if path.is_dir():
        return Checkpoint(path, read_hf_config(path), None)
    # a kind of file needs its packages only where there is one
    from gpu_node.models.gguf.gguf_config import read_gguf_config
    from shared.files.gguf_file import open_gguf

    file = open_gguf(path)
    return Checkpoint(path, read_gguf_config(file, path), file)

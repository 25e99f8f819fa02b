"""Tensors of a directory in Hugging Face layout under canonical names, checked against what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf_names import is_superfluous, prefix, stored
from gpu_node.models.names import first_of
from gpu_node.models.safetensors_files import weight_files
from gpu_node.models.stored import Stored
from shared.model_file import ModelFileError, sha256_of

_FLOATS = ("F32", "F16", "BF16", "F64")


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor in an open file."""

    name: str
    file: Any
    path: Path

    def check(self, shape: tuple[int, ...]) -> None:
        """`ModelFileError` where it is of another shape, or holds no floats."""
        part = self.file.get_slice(self.name)
        if tuple(part.get_shape()) != shape:
            raise ModelFileError(
                f"{self.path}: tensor {self.name} has shape {tuple(part.get_shape())}, expected {shape}"
            )
        if part.get_dtype() not in _FLOATS:
            raise ModelFileError(
                f"{self.path}: tensor {self.name} is of type {part.get_dtype()}; supported are {', '.join(_FLOATS)}"
            )

    def read(self) -> torch.Tensor:
        """Its values as they lie in the mapped file, of any floating type."""
        values: torch.Tensor = self.file.get_tensor(self.name)
        return values


def read_tensors(
    directory: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors ``stored_shapes`` (by canonical name), one after another: views of the mapped files, of any float.

    Whoever takes one copies what it wants of it before the next: pages that nobody reads are never in memory.
    `ModelFileError` names file and tensor, before anything is read, when one is missing, not wanted, of another shape,
    or not readable.
    """
    wanted = {name: stored(name, config) for name in stored_shapes}
    with ExitStack() as open_files:
        tensors = _tensors(weight_files(directory), prefix(config.family), open_files)
        names = {name for place in wanted.values() for name in place.names}
        unused = {name for name in tensors.keys() - names if not is_superfluous(name, config)}
        extra = {tensors[name].name for name in unused}
        missing = {_full_name(name, config) for name in names - tensors.keys()}
        if missing or extra:
            text = f"missing tensors: {first_of(missing)}; tensors not known: {first_of(extra)}"
            raise ModelFileError(f"{directory}: {text}")
        for name, place in wanted.items():
            for part in place.names:
                tensors[part].check(place.shape(stored_shapes[name]))
        return _weights(wanted, tensors, open_files.pop_all())


def _weights(
    wanted: Mapping[str, Stored], tensors: Mapping[str, _Tensor], open_files: ExitStack
) -> Iterator[tuple[str, torch.Tensor]]:
    with open_files:
        for name, place in wanted.items():
            yield name, place.weight([tensors[part].read() for part in place.names])


def _tensors(paths: list[Path], prefix: str, open_files: ExitStack) -> dict[str, _Tensor]:
    """All tensors of the files by their names without ``prefix``."""
    tensors: dict[str, _Tensor] = {}
    for path in paths:
        try:
            file = open_files.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{path} is no readable safetensors file ({error}); its sha256 is {sha256_of(path)}; fetch it again"
            ) from error
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            short = name.removeprefix(prefix)
            if short in tensors:
                raise ModelFileError(f"{path}: tensor {name} is also in {tensors[short].path} ({tensors[short].name})")
            tensors[short] = _Tensor(name, file, path)
    return tensors


def _full_name(name: str, config: ModelConfig) -> str:
    return name if name == "lm_head.weight" else prefix(config.family) + name

"""The matrices of one adapter: which weights of a model they change, asked of headers, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from gpu_node.models.adapters.adapter_config import AdapterConfig, read_adapter_config
from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.hf_names import prefix, stored
from gpu_node.models.hf.mapped_file import FLOATS, MappedFile
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.tensors.names import first_of
from gpu_node.models.tensors.stored import Stored
from shared.files.model_file import ModelFileError, identity

WEIGHTS_FILE = "adapter_model.safetensors"
_PICKLED = "adapter_model.bin"
OUTER = "base_model.model."
"""What PEFT puts before the names of a model's modules."""
A, B = ".lora_A.weight", ".lora_B.weight"
"""Behind the names of modules: which of the two matrices a tensor is."""


@dataclass(frozen=True, slots=True)
class AdaptedWeight:
    """Where the matrices for one weight lie."""

    module: str
    """As the file calls it, A and B left out."""
    place: Stored
    rank: int
    scale: float


class AdapterFile:
    """An adapter whose file fits the model: each matrix is read when it is asked for."""

    def __init__(self, name: str, directory: Path, config: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``shapes`` of the weights that can be changed, [outputs, inputs], by canonical name.

        `ModelFileError` names file and tensor: missing, of another shape, not a float's, or for another module.
        """
        self.name = name
        self._path = _weights_path(directory)
        settings = read_adapter_config(directory)
        with ExitStack() as open_files:
            header = opened_file(self._path, open_files)
            self.weights = _weights(header, self._path, settings, config, shapes)
        self._file = MappedFile(self._path)

    def shrink(self, weight: str) -> Float32s:
        """A of a weight: [rank, inputs]."""
        return self._file.float32s(self.weights[weight].module + A)

    def expand(self, weight: str) -> Float32s:
        """B of a weight, times the scale: [outputs, rank]."""
        one = self.weights[weight]
        values = self._file.float32s(one.module + B)
        num_rows = len(values) // one.place.num_parts
        part: Float32s = values[one.place.part * num_rows : (one.place.part + 1) * num_rows]
        return part * one.scale


def _weights_path(directory: Path) -> Path:
    path = directory / WEIGHTS_FILE
    if path.is_file():
        return path
    if (directory / _PICKLED).is_file():
        raise ModelFileError(
            f"{directory} holds its weights as {_PICKLED} only; such a file is a pickle, which can run any code when "
            f"it is read, and is refused: save the adapter as {WEIGHTS_FILE}"
        )
    raise ModelFileError(f"{directory} is no adapter: it holds no {WEIGHTS_FILE}")


def opened_file(path: Path, open_files: ExitStack) -> Any:
    """A safetensors file, by its package; `ModelFileError` where it is none."""
    try:
        return open_files.enter_context(safe_open(path, framework="np"))
    except (SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path} is no readable safetensors file ({error}); {identity(path)}; fetch it again"
        ) from error


def _weights(
    header: Any, path: Path, settings: AdapterConfig, config: ModelConfig, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, AdaptedWeight]:
    """By canonical name. Every tensor of the file has to be one of theirs."""
    names = set(header.keys())
    weights = {}
    used = set()
    for weight, shape in shapes.items():
        place = stored(weight, config)
        found = [module for module in _modules(place, config) if {module + A, module + B} & names]
        if not found:
            continue
        module = found[0]
        if missing := {module + A, module + B} - names:
            raise ModelFileError(f"{path}: tensor {first_of(missing)} is missing")
        plain = module.removeprefix(OUTER)
        rank = settings.rank_of(plain)
        outputs, inputs = shape
        _check(header, path, module + A, (rank, inputs))
        _check(header, path, module + B, (outputs * place.num_parts, rank))
        used |= {module + A, module + B}
        weights[weight] = AdaptedWeight(module, place, rank, settings.scale_of(plain))
    if names - used:
        able = sorted({weight.rpartition(".")[2] for weight in shapes})
        raise ModelFileError(
            f"{path}: tensors for what cannot be adapted here: {first_of(names - used)}; these can, in each layer of "
            f"this model: {', '.join(able)}"
        )
    if not weights:
        raise ModelFileError(f"{path} holds no matrices")
    return weights


def _modules(place: Stored, config: ModelConfig) -> Sequence[str]:
    """What a file may call the module of a weight: with the model's prefix, or as the bare model's."""
    short = place.names[0].removesuffix(".weight")
    return OUTER + prefix(config.family) + short, OUTER + short


def _check(header: Any, path: Path, name: str, shape: tuple[int, ...]) -> None:
    part = header.get_slice(name)
    if tuple(part.get_shape()) != shape:
        raise ModelFileError(f"{path}: tensor {name} has shape {tuple(part.get_shape())}, expected {shape}")
    if part.get_dtype() not in FLOATS:
        raise ModelFileError(f"{path}: tensor {name} is of type {part.get_dtype()}; supported are {', '.join(FLOATS)}")

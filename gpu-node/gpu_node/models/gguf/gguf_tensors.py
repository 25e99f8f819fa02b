"""Whether a GGUF file holds what a model needs: asked of its header, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gguf.quants import dequantize

from gpu_node.models.config import ModelConfig
from gpu_node.models.gguf.gguf_names import is_superfluous, stored
from gpu_node.models.tensors.names import first_of
from gpu_node.models.tensors.stored import Stored
from shared.files.gguf_file import GgufFile, GgufTensor
from shared.files.model_file import ModelFileError


def wanted_tensors(
    file: GgufFile, path: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Stored]:
    """Where each weight of ``stored_shapes`` (by canonical name) lies.

    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or of a type that cannot
    be read.
    """
    names = {name for name in file.tensors if not is_superfluous(name, config, stored_shapes)}
    wanted = {weight: stored(weight, config, names) for weight in stored_shapes}
    used = {name for place in wanted.values() for name in place.names}
    if used != names:
        text = f"missing tensors: {first_of(used - names)}; tensors not known: {first_of(names - used)}"
        raise ModelFileError(f"{path}: {text}")
    for weight, place in wanted.items():
        shape = place.shape(stored_shapes[weight])
        for name in place.names:
            if file.tensors[name].shape not in (shape, _without_ones(shape)):
                raise ModelFileError(f"{path}: tensor {name} has shape {file.tensors[name].shape}, expected {shape}")
    first_of_type = {file.tensors[name].type: file.tensors[name] for name in sorted(used, reverse=True)}
    for tensor in first_of_type.values():
        _check_type(tensor, path)
    return wanted


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As quantising tools write it, whose tensors have no dimension of size 1 at their slow end."""
    first = next((number for number, size in enumerate(shape) if size != 1), len(shape) - 1)
    return shape[first:]


def _check_type(tensor: GgufTensor, path: Path) -> None:
    """Dequantise a row: which types can be read is the package's to say."""
    try:
        dequantize(tensor.data.reshape(-1, tensor.data.shape[-1])[:1], tensor.type)
    except NotImplementedError as error:
        raise ModelFileError(
            f"{path}: tensor {tensor.name} is of type {tensor.type.name}, which cannot be read as weights; take a file "
            "with another quantisation, such as Q4_K_M or Q8_0"
        ) from error

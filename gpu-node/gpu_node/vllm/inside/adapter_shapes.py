"""Whether an adapter's matrices fit the model, by names and shapes in headers of files; no architecture is known.

vLLM asks too little: it copies matrices that are too narrow into room that is wide enough, and leaves out layers that
the model has not, so that an adapter of another model would be served as if it were this one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpu_node.models.adapters.adapter_config import AdapterConfig
from gpu_node.models.adapters.adapter_file import OUTER, WEIGHTS_FILE, A, B, opened_file
from gpu_node.models.hf.mapped_file import FLOATS
from shared.files.model_file import ModelFileError

_NUMBER = re.compile(r"\d+")
_WHOLE = (*FLOATS, "F8_E4M3", "I8")
"""Types of weights that are stored number by number; of packed ones, shapes say nothing."""


TensorShape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What a file says of a tensor."""

    name: str
    shape: TensorShape
    dtype: str


def tensors_of(path: Path) -> list[TensorHeader]:
    """All of a safetensors file; `ModelFileError` where it is none."""
    with ExitStack() as open_files:
        file = opened_file(path, open_files)
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
        return [TensorHeader(name, tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()]


class ModelModules:
    """The modules that a model's directory has tensors of; none where its weights are no safetensors files."""

    def __init__(self, directory: Path) -> None:
        weights: dict[str, TensorShape | None] = {}
        for path in sorted(directory.glob("*.safetensors")):
            for tensor in tensors_of(path):
                module, _, last = tensor.name.rpartition(".")
                is_told = last == "weight" and tensor.dtype in _WHOLE and len(tensor.shape) == 2
                weights[module] = tensor.shape if is_told else weights.get(module)
        self._shapes: dict[str, list[TensorShape | None]] = {}
        for module, shape in weights.items():
            for name in _names(module):
                self._shapes.setdefault(name, []).append(shape)
        self._kinds = {_kind(name) for name in self._shapes}

    def shapes(self, module: str) -> list[TensorShape | None]:
        """Of the weights that may be the module's; None of those that are packed. Empty where it is not there.

        Names may differ in their first part: a checkpoint of the bare model leaves it out.
        """
        return next((self._shapes[name] for name in _names(module) if name in self._shapes), [])

    def has_kind(self, module: str) -> bool:
        """Whether any layer has such a module."""
        return any(_kind(name) in self._kinds for name in _names(module))


def check_shapes(directory: Path, config: AdapterConfig, modules: ModelModules) -> None:
    """`ModelFileError` names the adapter's matrices that do not fit, or have no place.

    Modules that no layer of the files has by such a name are left to vLLM, which may call them otherwise.
    """
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise ModelFileError(f"{directory} holds no {WEIGHTS_FILE}; no other kind of file is read for an adapter")
    tensors = {tensor.name: tensor.shape for tensor in tensors_of(path)}
    for name in (one.removesuffix(A) for one in tensors if one.endswith(A)):
        module = name.removeprefix(OUTER)
        shapes = modules.shapes(module)
        if shapes or not modules.has_kind(module):
            _check(path, name, tensors, config.rank_of(module), shapes)
        else:
            raise ModelFileError(f"{path}: {name} is of a layer that the model has not")


def _check(
    path: Path, name: str, tensors: Mapping[str, TensorShape], rank: int, shapes: list[TensorShape | None]
) -> None:
    """A is [rank, inputs] and B [outputs, rank]; GPT-2 stores its weights transposed, so either order will do."""
    a, b = tensors[name + A], tensors.get(name + B, ())
    if len(a) == len(b) == 2 and a[0] == b[1] == rank:
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or not known or any((b[0], a[1]) in (shape, shape[::-1]) for shape in known):
            return
        weight = f", of a weight of shape {known[0]}"
    else:
        weight = ""
    raise ModelFileError(
        f"{path}: {name} has matrices A and B of shapes {a} and {b}; expected are (rank, inputs) and (outputs, rank) "
        f"with rank {rank}{weight}"
    )


def _names(module: str) -> Iterator[str]:
    """Its own, and that without its first part."""
    yield module
    _, _, rest = module.partition(".")
    if rest:
        yield rest


def _kind(module: str) -> str:
    """Equal for the modules of all layers."""
    return _NUMBER.sub("#", module)

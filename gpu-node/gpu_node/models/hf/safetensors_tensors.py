"""Whether a directory in Hugging Face layout holds what a model needs: asked of headers, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from gpu_node.models.config import ModelConfig
from gpu_node.models.hf.hf_names import full_name, is_superfluous, prefix, stored
from gpu_node.models.hf.mapped_file import FLOATS
from gpu_node.models.hf.safetensors_files import weight_files
from gpu_node.models.hf.tied_head import check_tied
from gpu_node.models.tensors.names import first_of
from gpu_node.models.tensors.stored import Stored
from shared.files.model_file import ModelFileError, identity

_HEAD = "lm_head.weight"

Framework = Literal["pt", "np"]
"""The package whose tensors are read; for headers alone, either will do."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
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
        if part.get_dtype() not in FLOATS:
            raise ModelFileError(
                f"{self.path}: tensor {self.name} is of type {part.get_dtype()}; supported are {', '.join(FLOATS)}"
            )

    def read(self) -> Any:
        """Its values as they lie in the mapped file, of any floating type, as a tensor of the framework."""
        return self.file.get_tensor(self.name)


def wanted_tensors(
    directory: Path,
    config: ModelConfig,
    stored_shapes: Mapping[str, tuple[int, ...]],
    open_files: ExitStack,
    framework: Framework,
) -> tuple[dict[str, Stored], dict[str, StoredTensor]]:
    """Where each weight of ``stored_shapes`` (by canonical name) lies, and all tensors; the files stay open.

    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable.
    """
    wanted = {name: stored(name, config) for name in stored_shapes}
    tensors = _tensors(weight_files(directory), prefix(config.family), open_files, framework)
    names = {name for place in wanted.values() for name in place.names}
    unused = {name for name in tensors.keys() - names if not is_superfluous(name, config.family)}
    extra = {tensors[name].name for name in unused}
    missing = {full_name(name, config.family) for name in names - tensors.keys()}
    if missing or extra:
        text = f"missing tensors: {first_of(missing)}; tensors not known: {first_of(extra)}"
        raise ModelFileError(f"{directory}: {text}")
    for name, place in wanted.items():
        for part in place.names:
            tensors[part].check(place.shape(stored_shapes[name]))
    if config.tied_embedding and not config.is_encoder and "embedding" in wanted and _HEAD in tensors:
        embedding = tensors[wanted["embedding"].names[0]]
        check_tied((tensors[_HEAD].path, tensors[_HEAD].name), (embedding.path, embedding.name))
    return wanted, tensors


def _tensors(paths: list[Path], prefix: str, open_files: ExitStack, framework: Framework) -> dict[str, StoredTensor]:
    """All tensors of the files by their names without ``prefix``."""
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        try:
            file = open_files.enter_context(safe_open(path, framework=framework))
        except (SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{path} is no readable safetensors file ({error}); {identity(path)}; fetch it again"
            ) from error
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            short = name.removeprefix(prefix)
            if short in tensors:
                raise ModelFileError(f"{path}: tensor {name} is also in {tensors[short].path} ({tensors[short].name})")
            tensors[short] = StoredTensor(name, file, path)
    return tensors

"""Which tensor of a directory in Hugging Face layout lies in which safetensors file. Pickled weights are never read."""

from __future__ import annotations

from pathlib import Path

from gpu_node.models.hf.hf_config import read_json_values
from shared.files.model_file import ModelFileError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files that make up the model; `ModelFileError` where there are none, or one is missing."""
    single, index = directory / SINGLE_FILE, directory / INDEX_FILE
    if single.is_file():
        return [single]
    if index.is_file():
        return _indexed(index)
    pickled = sorted(path.name for pattern in _PICKLED for path in directory.glob(pattern))
    if pickled:
        raise ModelFileError(
            f"{directory} holds its weights as {', '.join(pickled)} only; such files are pickles, which can run any "
            f"code when they are read, and are refused: save the model as {SINGLE_FILE}"
        )
    raise ModelFileError(f"{directory} holds neither {SINGLE_FILE} nor {INDEX_FILE}")


def _indexed(index: Path) -> list[Path]:
    places = read_json_values(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise ModelFileError(f"{index}: weight_map is no mapping of tensors to files")
    present = {path.name for path in index.parent.iterdir() if path.is_file()}
    files = [index.parent / name for name in sorted(set(places.values()))]
    for path in files:
        if path.parent != index.parent or path.suffix != ".safetensors":
            raise ModelFileError(f"{index}: {path.name!r} is no safetensors file beside it")
        if path.name not in present:  # asked of the directory: a name may be too long to be asked for
            raise ModelFileError(f"{path} is missing; {index.name} names it")
    return files

"""Types of tensors in GGUF files: what the gguf package can dequantise is loaded, all else is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.weights.weights import load_weights
from shared.files.model_file import ModelFileError
from tests.gpu_node.gguf_files import Array, tensors_of, write_gguf
from tests.gpu_node.models.test_families_models import save

NOT_WEIGHTS = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0")
"""Activations, integers, and what the package has no function for."""
NAME, WEIGHT = "blk.1.ffn_up.weight", "layers.1.up"
SHAPE = (512, 256)
"""Blocks are of up to 256 numbers."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide")
    save("llama", path, hidden_size=SHAPE[1], intermediate_size=SHAPE[0])
    return path


def loaded(directory: Path, path: Path, packed: Array, kind: GGMLQuantizationType) -> torch.Tensor:
    """The weight that is read of a file which holds it as ``packed``."""
    tensors = tensors_of(directory)
    assert tensors[NAME].shape == SHAPE
    checkpoint = open_checkpoint(write_gguf(path, directory, tensors=tensors | {NAME: packed}, types={NAME: kind}))
    return load_weights(checkpoint, build_program(checkpoint.config))[WEIGHT]


def random_bytes(kind: GGMLQuantizationType) -> Array:
    block_numbers, block_bytes = GGML_QUANT_SIZES[kind]
    shape = (SHAPE[0], SHAPE[1] // block_numbers * block_bytes)
    return np.random.default_rng(6).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("kind", [kind for kind in GGMLQuantizationType if kind.name not in NOT_WEIGHTS], ids=str)
@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # random scales are not all finite
def test_what_the_package_dequantises_is_loaded(kind: GGMLQuantizationType, directory: Path, tmp_path: Path) -> None:
    packed = random_bytes(kind)
    expected = torch.from_numpy(dequantize(packed, kind).copy())
    ours = loaded(directory, tmp_path / "a.gguf", packed, kind)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "bound"), [("F16", 1e-3), ("BF16", 5e-3), ("Q8_0", 0.01), ("Q5_1", 0.05), ("Q4_0", 0.15)]
)
def test_packed_weights_stand_for_what_was_packed(name: str, bound: float, directory: Path, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[name]
    values = tensors_of(directory)[NAME]
    ours = loaded(directory, tmp_path / "a.gguf", quantize(values, kind).view(np.uint8), kind)
    before = torch.from_numpy(values)
    assert 0 < float((ours - before).norm() / before.norm()) < bound


@pytest.mark.parametrize("name", NOT_WEIGHTS)
def test_a_type_that_cannot_be_read_is_named(name: str, directory: Path, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[name]
    with pytest.raises(
        ModelFileError, match=rf"a\.gguf: tensor blk\.1\.ffn_up\.weight is of type {name}, which cannot"
    ):
        loaded(directory, tmp_path / "a.gguf", random_bytes(kind), kind)


def test_a_type_that_is_not_known_is_named_by_its_number(directory: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", directory)
    data = path.read_bytes()
    # behind the name: the number of dimensions, two sizes, and then the type
    place = data.index(NAME.encode()) + len(NAME) + 4 + 2 * 8
    path.write_bytes(data[:place] + (99).to_bytes(4, "little") + data[place + 4 :])
    with pytest.raises(ModelFileError, match=r"a\.gguf.*tensor 'blk\.1\.ffn_up\.weight' is of unknown type 99"):
        open_checkpoint(path)

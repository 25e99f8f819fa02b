"""The header of GGUF files is read as the gguf package reads it, and no damaged file is more than an error."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.files.gguf_file import MAX_HEADER_BYTES, open_gguf
from shared.files.model_file import ModelFileError

VALUES: dict[str, Any] = {
    "text": "naïve 🧵",
    "texts": ["", "a", "Ġthe"],
    "whole": 7,
    "wholes": [3, -1, 2**31 - 1],
    "float": 0.5,
    "floats": [0.25, -1.0],
    "flag": True,
    "flags": [True, False],
}


def write(path: Path, alignment: int = 32) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for key, value in VALUES.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    writer.add_uint64("long", 2**40)
    writer.add_int8("short", -3)
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("packed", np.arange(68, dtype=np.uint8).reshape(2, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("half", np.ones(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("gguf") / "a.gguf").read_bytes()


@pytest.mark.parametrize("alignment", [32, 256])
def test_metadata_and_tensors_are_those_that_the_package_reads(tmp_path: Path, alignment: int) -> None:
    path = write(tmp_path / "a.gguf", alignment)
    file = open_gguf(path)
    given_keys = {"general.architecture": "llama", "general.alignment": alignment, "long": 2**40, "short": -3}
    assert file.metadata == VALUES | given_keys
    theirs = gguf.GGUFReader(path)
    for tensor in theirs.tensors:
        ours = file.tensors[tensor.name]
        assert (ours.type, ours.shape) == (tensor.tensor_type, tuple(reversed(tensor.shape.tolist())))
        assert ours.data.tobytes() == tensor.data.tobytes()
    assert file.tensors.keys() == {"matrix", "packed", "half"}
    assert file.tensors["packed"].shape == (2, 32)
    assert file.tensors["packed"].data.shape == (2, 34)


def test_a_file_cut_anywhere_is_an_error_of_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    end = len(content) - 22  # the last tensor's 10 bytes are filled up to 32
    for size in range(end):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"cut\.gguf is no readable GGUF file \(.*\); its sha256 is .*again$"):
            open_gguf(path)
    path.write_bytes(content[:end])
    assert open_gguf(path).tensors["half"].data.view("<f2").tolist() == [1.0] * 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.dictionaries(st.integers(0, 900), st.integers(0, 255), min_size=1, max_size=4))
def test_a_file_with_wrong_bytes_is_read_or_an_error(content: bytes, places: dict[int, int], tmp_path: Path) -> None:
    damaged = bytearray(content)
    for place, byte in places.items():
        damaged[place % len(damaged)] = byte
    path = tmp_path / "odd.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(damaged)
    assert "\n" not in what_is_wrong(path)


def what_is_wrong(path: Path) -> str:
    """The text of the error, nothing where the file can be read."""
    try:
        open_gguf(path)
    except ModelFileError as error:
        return str(error)
    return ""


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(*pairs: bytes, tensors: tuple[bytes, ...] = (), version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)


def tensor(name: bytes, *sizes: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


BYTE = text(b"key") + struct.pack("<IB", gguf.GGUFValueType.UINT8, 1)
ALIGNMENT = text(b"general.alignment") + struct.pack("<II", gguf.GGUFValueType.UINT32, 48)
ARRAY = gguf.GGUFValueType.ARRAY


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it ends at byte 0, inside its header"),
        (b"PK\3\4" + bytes(40), "it does not begin with 'GGUF'"),
        (header(version=1), r"its version is 1, supported are \(2, 3\)"),
        (header(version=3 << 24), "its version is 50331648, supported are .*, little-endian"),
        (header(BYTE, BYTE), "key 'key' is there twice"),
        (header(text(b"\xff")), "the text at byte 24 is not UTF-8"),
        (header(text(b"key") + struct.pack("<I", 77)), "a value of unknown type 77 at byte 39"),
        (header(text(b"key") + struct.pack("<IIQ", ARRAY, ARRAY, 1)), "a value of unknown type 9 at byte"),
        (header(text(b"key") + struct.pack("<IIQ", ARRAY, 5, 2**63)), "it ends at byte .*, inside its header"),
        (header(text(b"key") + struct.pack("<IIQ", ARRAY, 8, 2**63)), "it ends at byte .*, inside its header"),
        (header(ALIGNMENT), "general.alignment is 48, expected a power of two"),
        (header(tensors=(tensor(b"a", 1), tensor(b"a", 1))) + bytes(64), "tensor 'a' is there twice"),
        (header(tensors=(tensor(b"a", 1, 1, 1, 1, 1),)), "tensor 'a' has 5 dimensions"),
        (header(tensors=(tensor(b"a", 1, kind=99),)), "tensor 'a' is of unknown type 99"),
        (header(tensors=(tensor(b"a", 48, kind=8),)), "tensor 'a' has rows of 48 numbers; Q8_0 packs 32 together"),
        (header(tensors=(tensor(b"a", 2**60, 2**60),)), "tensor 'a' ends at byte"),
        (header(tensors=(tensor(b"a", 1, offset=2**63),)), "tensor 'a' ends at byte"),
        (header(tensors=(tensor(b"a", 2**63, 0),)), r"tensor 'a' has shape \(0, 9223372036854775808\), which holds"),
    ],
)
def test_what_is_wrong_is_told(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"odd\.gguf is no readable GGUF file \({words}.*\); its sha256 is"):
        open_gguf(path)


def test_lists_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    pairs = [text(name) + struct.pack("<IIQ", ARRAY, kind, 0) for name, kind in ((b"numbers", 5), (b"texts", 8))]
    path.write_bytes(header(*pairs))
    assert open_gguf(path).metadata == {"numbers": [], "texts": []}


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"is a directory; a GGUF file is expected"):
        open_gguf(tmp_path)
    with pytest.raises(ModelFileError, match=r"none\.gguf cannot be read: .*No such file"):
        open_gguf(tmp_path / "none.gguf")


def test_of_a_large_file_the_size_is_told(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # holes only
    with pytest.raises(
        ModelFileError, match=r"\(it does not begin with 'GGUF'\); it has 1073741825 bytes; fetch it again$"
    ):
        open_gguf(path)


@pytest.mark.parametrize(("kind", "item_bytes"), [(gguf.GGUFValueType.UINT8, 1), (gguf.GGUFValueType.STRING, 8)])
def test_a_list_that_would_fill_the_memory_is_not_read(kind: int, item_bytes: int, tmp_path: Path) -> None:
    """Its numbers are there, in a file that takes no room on a disk; as a list they would take two gigabytes."""
    path = tmp_path / "m.gguf"
    header = struct.pack("<IIQQ", gguf.GGUF_MAGIC, 3, 0, 1)
    key = struct.pack("<Q3sIIQ", 3, b"big", gguf.GGUFValueType.ARRAY, kind, MAX_HEADER_BYTES // item_bytes)
    path.write_bytes(header + key)
    with path.open("r+b") as file:
        file.truncate((1 << 30) + 1)  # holes; so large that its size is told, and no digest made
    with pytest.raises(ModelFileError, match=f"it goes on behind byte {MAX_HEADER_BYTES}, inside its header"):
        open_gguf(path)

"""Weights told apart without reading them whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.config.engines.engine import ModelSpec
from shared.files.fingerprint import NUM_SAMPLES, SAMPLE_BYTES, fingerprint
from shared.files.model_file import ModelFileError

NUM_BYTES = 100 * SAMPLE_BYTES


def spec(path: Path, sha256: str | None = None) -> ModelSpec:
    return ModelSpec(name="m", source=str(path), sha256=sha256)


@pytest.mark.parametrize("num_bytes", [0, 1, SAMPLE_BYTES, SAMPLE_BYTES + 1, 3 * SAMPLE_BYTES, 20 * SAMPLE_BYTES + 7])
def test_every_byte_of_a_small_file_counts(tmp_path: Path, num_bytes: int) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(bytes(num_bytes))
    found = {fingerprint(spec(file))}
    places = range(0, num_bytes, max(1, num_bytes // 50))
    for place in places:
        data = bytearray(num_bytes)
        data[place] = 1
        file.write_bytes(data)
        found.add(fingerprint(spec(file)))
    file.write_bytes(bytes(num_bytes + 1))
    found.add(fingerprint(spec(file)))
    assert len(found) == len(places) + 2


def test_of_a_large_file_a_part_of_thirty_is_met(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    num_bytes = 50 * NUM_SAMPLES * SAMPLE_BYTES
    file.write_bytes(bytes(num_bytes))
    found = {fingerprint(spec(file))}
    for part in range(30):
        data = bytearray(num_bytes)
        data[part * num_bytes // 30 : (part + 1) * num_bytes // 30] = b"\1" * (
            (part + 1) * num_bytes // 30 - part * num_bytes // 30
        )
        file.write_bytes(data)
        found.add(fingerprint(spec(file)))
    assert len(found) == 31


def test_a_directory_is_its_weights_and_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.safetensors").write_bytes(b"1")
    first = fingerprint(spec(tmp_path))
    (tmp_path / "README.md").write_text("about it")
    (tmp_path / ".fetched.json").write_text("{}")
    assert fingerprint(spec(tmp_path)) == first
    (tmp_path / "a.safetensors").rename(tmp_path / "b.safetensors")
    second = fingerprint(spec(tmp_path))
    (tmp_path / "config.json").write_text('{"rope_theta": 1}')
    assert len({first, second, fingerprint(spec(tmp_path))}) == 3


def test_a_configured_digest_says_it(tmp_path: Path) -> None:
    assert fingerprint(spec(tmp_path / "gone", "f" * 64)) == "f" * 64


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="gone cannot be read"):
        fingerprint(spec(tmp_path / "gone"))


def test_names_of_files_need_be_no_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"r\xe9sum\xe9.json")).write_text("{}")
    latin = fingerprint(spec(tmp_path))
    (tmp_path / os.fsdecode(b"r\xe9sum\xe9.json")).rename(tmp_path / "resume.json")
    assert fingerprint(spec(tmp_path)) != latin

"""`treadle models export`: a GGUF file becomes a directory that our own engine reads the same weights from."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main


def export(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["models", "export", *arguments])
    return result.exit_code, result.stderr.strip() or result.stdout.strip()


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    status, said = export(str(tmp_path / "model.gguf"), str(tmp_path / "full"))
    assert (status, said) == (2, f"Error: {tmp_path}/full is there already; name another folder, or remove it")


def test_a_directory_needs_no_export(tmp_path: Path) -> None:
    status, said = export(str(tmp_path), str(tmp_path / "new"))
    assert (status, said) == (2, f"Error: model 'model': {tmp_path} is a directory in that layout already")


@pytest.mark.slow
def test_a_file_that_is_none_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    status, said = export(str(tmp_path / "model.gguf"), str(tmp_path / "new"))
    assert status == 2
    assert said.startswith(f"Error: {tmp_path}/model.gguf was not exported: ")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]

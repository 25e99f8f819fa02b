"""A folder that is not that of a cluster of one's own is told in a line."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from cli.main import main


def invoke(command: str, data_dir: Path, tmp_path: Path) -> Result:
    config = tmp_path / "cluster.yaml"
    config.write_text(f"data_dir: {data_dir}\n")
    return CliRunner().invoke(main, [command, "-f", str(config)])


def test_a_folder_below_a_file_has_no_state(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("status", tmp_path / "file", tmp_path)
    state = tmp_path / "file" / "run" / "cluster.json"
    expected = f"Error: {state} cannot be read: Not a directory; is data_dir that of your cluster?\n"
    assert (result.exit_code, result.output) == (2, expected)


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "run" / "lock"
    lock.mkdir(parents=True)
    (tmp_path / "run" / "cluster.json").write_text("{}")
    result = invoke("down", tmp_path, tmp_path)
    expected = f"Error: {lock} cannot be written: Is a directory; is data_dir that of your cluster?\n"
    assert (result.exit_code, result.output) == (2, expected)

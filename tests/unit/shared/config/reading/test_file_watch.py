"""A file that is looked at again and again: when it is read, and when it is not known yet what it says."""

from __future__ import annotations

from pathlib import Path

from shared.config.reading.file_watch import FileWatch


def test_what_could_not_be_used_is_not_waited_for_once_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("models: [")
    file = FileWatch(path)
    looks = []
    for text in ("models: [", "models: [", "models: [a]", "models: [a]"):
        if text != path.read_text():
            path.write_text(text)
        looks.append((file.must_be_read(), file.has_changed))
    assert looks == [(False, True), (True, False), (False, True), (True, False)]

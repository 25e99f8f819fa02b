"""Whether a file has changed, and has stood still since."""

from __future__ import annotations

from pathlib import Path

from shared.config.reading.file_watch import FileWatch


def test_a_file_that_is_new_is_read_at_the_next_look(tmp_path: Path) -> None:
    """Nobody waits longer for it, whatever was wrong with the one before (`shared.service.file_looks`)."""
    path = tmp_path / "cluster.yaml"
    path.write_text("a")
    watch = FileWatch(path)
    assert (watch.must_be_read(), watch.is_new) == (False, True)
    assert (watch.must_be_read(), watch.is_new) == (True, False)
    assert (watch.must_be_read(), watch.is_new) == (True, False), "until it is settled"
    watch.settle()
    assert (watch.must_be_read(), watch.is_new) == (False, False)
    path.write_text("other")
    assert (watch.must_be_read(), watch.is_new) == (False, True)
    path.write_text("another")
    assert (watch.must_be_read(), watch.is_new) == (False, True), "it does not stand still"
    assert (watch.must_be_read(), watch.is_new) == (True, False)

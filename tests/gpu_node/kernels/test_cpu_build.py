"""The kernels' library: where it comes from, and what is said when it cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_node.kernels.cpu.library import build
from gpu_node.kernels.cpu.library.build import COMPILER_ENV, LIBRARY_ENV, CompilerError, compile_library, library_path


def test_a_machine_without_a_compiler_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(LIBRARY_ENV, raising=False)
    monkeypatch.setenv(COMPILER_ENV, "no-such-compiler")
    with pytest.raises(CompilerError, match=r"^no C\+\+ compiler .*CXX=no-such-compiler.*apt-get install g\+\+.*$"):
        library_path()


def test_the_first_error_of_the_compiler_is_passed_on_in_one_line(tmp_path: Path) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("int main() { return nothing; }\n")
    with pytest.raises(CompilerError, match=r"^the CPU kernels do not compile with .*broken\.cpp:1.*nothing.*$"):
        compile_library(tmp_path / "lib.so", "c++", [source])
    assert [path.name for path in tmp_path.iterdir()] == ["broken.cpp"]


def test_a_built_library_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_ENV, "/somewhere/libtreadle_cpu.so")
    monkeypatch.setenv(COMPILER_ENV, "no-such-compiler")
    assert library_path() == Path("/somewhere/libtreadle_cpu.so")


def test_a_library_is_compiled_once_and_anew_when_a_source_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "one.cpp"
    source.write_text("int one() { return 1; }\n")
    monkeypatch.delenv(LIBRARY_ENV, raising=False)
    monkeypatch.setenv(build.CACHE_ENV, str(tmp_path / "cache"))
    monkeypatch.setattr(build, "sources", lambda: [source])
    first = library_path()
    made = first.stat().st_mtime_ns
    assert library_path() == first
    assert first.stat().st_mtime_ns == made
    source.write_text("int one() { return 2; }\n")
    assert library_path() != first

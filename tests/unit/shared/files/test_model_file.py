"""Files of models and adapters: where they lie, and what is said of those that are not what they should be."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.all_files import checked_adapters, checked_paths
from shared.files.model_file import ModelFileError, checked_path, model_digest, model_path

WRONG = "0" * 64


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    path = tmp_path / "legal"
    path.mkdir()
    (path / "adapter_config.json").write_text("{}")
    (path / "adapter_model.safetensors").write_bytes(b"weights")
    return path


def refused(spec: ModelSpec | AdapterSpec) -> str:
    with pytest.raises(ModelFileError) as caught:
        checked_path(spec)
    return str(caught.value)


def test_an_adapter_lies_where_its_source_says(adapter: Path) -> None:
    assert checked_path(AdapterSpec("legal", str(adapter))) == adapter
    assert model_path(AdapterSpec("legal", "~/adapters/legal")) == Path.home() / "adapters" / "legal"


def test_the_digest_of_an_adapter_is_what_its_documented_command_prints(adapter: Path) -> None:
    (adapter / os.fsdecode(b"r\xe9sum\xe9.txt")).write_bytes(b"a name that is no text")
    command = f"cd {adapter} && LC_ALL=C sha256sum * | sha256sum"
    printed = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout.split()[0]
    assert checked_path(AdapterSpec("legal", str(adapter), sha256=printed)) == adapter
    (adapter / "adapter_model.safetensors").write_bytes(b"other weights")
    found = model_digest(adapter)
    assert refused(AdapterSpec("legal", str(adapter), sha256=printed)) == (
        f"adapter 'legal': {adapter} is damaged or another adapter: its sha256 is {found}, expected {printed}; "
        "delete it and put its directory there: it is not fetched"
    )


def test_an_adapter_that_is_missing_or_a_file_is_named_with_the_remedy(adapter: Path, tmp_path: Path) -> None:
    assert refused(AdapterSpec("legal", str(tmp_path / "none"))) == (
        f"adapter 'legal': {tmp_path / 'none'} does not exist; put its directory there: it is not fetched"
    )
    file = adapter / "adapter_model.safetensors"
    assert refused(AdapterSpec("legal", str(file))) == (
        f"adapter 'legal': {file} is a file; name its directory, which holds adapter_config.json"
    )


def test_models_and_adapters_are_found_together_and_told_of_together(adapter: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"model")
    digest = hashlib.sha256(b"model").hexdigest()
    good = ModelSpec("smol", str(file), sha256=digest, adapters=(AdapterSpec("legal", str(adapter)),))
    assert checked_paths([good]) == {"smol": file, "legal": adapter}
    assert checked_adapters([good]) == {"legal": adapter}
    gone = AdapterSpec("gone", str(tmp_path / "none"))
    bad = ModelSpec("m", str(file), sha256=WRONG, adapters=(gone,))
    with pytest.raises(ModelFileError) as caught:
        checked_paths([good, bad])
    assert str(caught.value).splitlines() == ["2 problems", f"  - {refused(bad)}", f"  - {refused(gone)}"]
    with pytest.raises(ModelFileError) as caught:
        checked_adapters([good, bad])
    assert str(caught.value) == refused(gone)


@contextmanager
def shut(folder: Path) -> Iterator[None]:
    """Inside, this user may not look into it."""
    folder.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)  # who may do everything becomes somebody who may not
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_what_this_user_may_not_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a.gguf").write_bytes(b"GGUF")
    with shut(folder):
        for path in (folder, folder / "a.gguf"):
            assert refused(ModelSpec("a", str(path))) == f"model 'a': {path} cannot be read: Permission denied"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert refused(ModelSpec("a", str(path))) == f"model 'a': {path} is neither a file nor a directory"


def test_what_the_system_refuses_to_look_at_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 300)
    assert refused(ModelSpec("a", str(path))) == f"model 'a': {path} cannot be read: File name too long"
    endless = "/proc/self/mem"  # nothing is mapped where it begins
    assert refused(ModelSpec("a", endless, sha256=WRONG)) == f"model 'a': {endless} cannot be read: Input/output error"

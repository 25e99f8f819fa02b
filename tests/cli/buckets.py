"""What tests of buckets have in common: a directory and a file in a storage, and pulls from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cli.errors import CliError
from cli.main import main
from cli.models.pull import pull_models
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path
from tests.cli.object_store import ACCESS_KEY, SECRET, ObjectStore, serving

SOURCE = "s3://models/llama/tiny/"
FILE = "s3://models/quants/tiny.gguf"
WEIGHTS = bytes(range(256)) * 1000
GGUF = b"GGUF" + WEIGHTS
MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": WEIGHTS,
    "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}',
}
OTHERS = {"": b"", "README.md": b"read me", "modeling.py": b"raise", "pytorch_model.bin": b"pickle", "onnx/": b""}


def below(prefix: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}{name}": content for name, content in files.items()}


@contextmanager
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """With a directory and a file, an environment that leads to it alone, and an empty folder for models."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    objects = below("llama/tiny/", MODEL | OTHERS) | {"quants/tiny.gguf": GGUF, "llama/tiny-2/config.json": b"{}"}
    with serving(ObjectStore(objects)) as store:
        environment = {
            "AWS_ENDPOINT_URL_S3": store.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "TREADLE_MODELS_DIR": str(tmp_path / "models"),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield store


def config(source: str = SOURCE, **fields: Any) -> ClusterConfig:
    return ClusterConfig(models=[ModelSpec(name="tiny", source=source, **fields)])


def pull(wanted: ClusterConfig) -> list[Path]:
    return pull_models(wanted, Console(file=StringIO()))


def refused(wanted: ClusterConfig) -> str:
    """What a pull that must fail says; nothing of a secret, and no model at its place."""
    there = place(wanted).exists()
    with pytest.raises(CliError) as raised:
        pull(wanted)
    assert SECRET not in raised.value.message
    assert ACCESS_KEY not in raised.value.message
    assert place(wanted).exists() is there
    return raised.value.message


def place(wanted: ClusterConfig) -> Path:
    return model_path(wanted.models[0])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pinned(source: str) -> str:
    done = CliRunner().invoke(main, ["models", "pin", source])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()  # the storage, in a thread, tells on stderr of clients that have left

"""`treadle config check` on fifteen broken files: every problem of each, whatever kind it is of, in one answer."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from tests.cli.whole_model import write_adapter, write_whole

BROKEN = Path(__file__).parent / "broken"


def make_models(folder: Path) -> None:
    """What the files name: one model that is whole, and others that are not."""
    whole = write_whole(folder / "tiny.gguf")
    write_whole(folder / "huge.gguf", context_length=131_072)
    write_whole(folder / "mamba.gguf", arch="mamba")
    write_whole(folder / "odd.gguf", odd_type=True)
    (folder / "cut.gguf").write_bytes(whole.read_bytes()[:-1000])
    (folder / "text.gguf").write_text("not a model")
    write_adapter(folder / "adapter")
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 96,
        "max_position_embeddings": 128,
    }
    for name in ("directory", "pickled"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    weight_map = {"model.embed_tokens.weight": "model-00002-of-00002.safetensors"}
    (folder / "directory" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "pickled" / "pytorch_model.bin").write_bytes(b"")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_models(folder)
    return folder


def check(file: Path, folder: Path) -> str:
    """What is said of a file of this folder, with FOLDER for the place of its models."""
    copy = folder / file.name
    copy.write_text(file.read_text().replace("FOLDER", str(folder)))
    result = CliRunner().invoke(main, ["config", "check", str(copy)])
    assert (result.exit_code, result.stdout) == (2, "")
    allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
    said = result.stderr.replace(str(folder), "FOLDER").replace(f"run on {allowed} only", "run on OURS only")
    return re.sub(r"sha256 is [0-9a-f]{64}", "sha256 is DIGEST", said)


@pytest.mark.parametrize("file", sorted(BROKEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_problem_is_said_at_once(file: Path, folder: Path) -> None:
    assert check(file, folder) == file.with_suffix(".txt").read_text()


def test_there_are_fifteen() -> None:
    assert len(list(BROKEN.glob("*.yaml"))) == 15


def test_a_model_with_adapters_that_are_there_is_told_with_them(folder: Path) -> None:
    file = folder / "adapted.yaml"
    file.write_text(
        f"models: [{{name: tiny, source: {folder}/tiny.gguf, adapters: [{{name: legal, source: {folder}/adapter}}, "
        f"{{name: own, source: {folder}/adapter}}]}}]\n"
    )
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        0,
        ["  tiny: requests of up to 4096 tokens, prompt and answer together", "    with adapters: legal, own"],
    )

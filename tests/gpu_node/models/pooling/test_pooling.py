"""What a model's files say of how it embeds: only what is done here is served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.pooling import check_pooling
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save_config

LAST = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def written(folder: Path, modules: Any = None, pooling: Any = None, **config: Any) -> Path:
    save_config("qwen3", folder, **config)
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize("pooling", [LAST, {"pooling_mode": "lasttoken"}])
def test_the_last_token_is_taken(tmp_path: Path, pooling: Any) -> None:
    check_pooling(open_checkpoint(written(tmp_path, MODULES, pooling)))


def test_files_that_say_nothing_are_taken(tmp_path: Path) -> None:
    check_pooling(open_checkpoint(written(tmp_path)))


DENSE = [{**MODULES[1], "type": "sentence_transformers.models.Dense"}]


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (
            {"modules": MODULES, "pooling": LAST | {"pooling_mode_mean_tokens": True}},
            "1_Pooling/config.json: its embeddings are pooled by lasttoken, mean_tokens; task: embed takes the last",
        ),
        ({"modules": MODULES, "pooling": {"pooling_mode": "cls"}}, "pooled by cls; task: embed takes the last token's"),
        ({"modules": MODULES}, "1_Pooling/config.json cannot be read as JSON"),
        ({"modules": DENSE}, "modules.json: module 0 is 'Dense', which is not supported"),
        ({"modules": {}}, "modules.json: expected a list of mappings at the top"),
        ({"is_causal": False}, "config.json: its tokens see those behind them (is_causal)"),
    ],
)
def test_another_way_is_refused(tmp_path: Path, files: dict[str, Any], error: str) -> None:
    folder = written(tmp_path, **files)
    with pytest.raises(ModelFileError, match=re.escape(error)):
        check_pooling(open_checkpoint(folder))


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"llama__pooling_type": 3}, ""),
        ({"llama__pooling_type": 1}, "its embeddings are pooled by 'mean' (pooling_type); task: embed takes the last"),
        ({"llama__pooling_type": 2}, "its embeddings are pooled by 'cls' (pooling_type)"),
    ],
)
def test_a_gguf_file_says_it_by_number(tmp_path: Path, metadata: dict[str, int], error: str) -> None:
    path = tiny.write_gguf(tmp_path / "tiny.gguf", tiny.tensors_of(tiny.make_model()), **metadata)
    if error:
        with pytest.raises(ModelFileError, match=re.escape(error)):
            check_pooling(open_checkpoint(path))
    else:
        check_pooling(open_checkpoint(path))

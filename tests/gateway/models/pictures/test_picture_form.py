"""What a directory says of images: the token, the placeholder, and the family's count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.models.hf_model import read_directory
from gateway.models.pictures.picture_counts import CountTokens, FixedTokens, NativeTokens, RowTokens, TiledTokens
from gateway.models.pictures.picture_form import PictureForm
from shared.files.model_file import ModelFileError
from tests.gateway.hf_tiny import write_directory
from tests.gateway.picture_tiny import image_id, write_vision

CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
PIXTRAL = {"model_type": "pixtral", "image_size": 1540, "patch_size": 14}


def form_of(path: Path, **changed: Any) -> PictureForm | None:
    return read_directory(write_vision(path, **changed)).pictures


@pytest.mark.parametrize(
    ("config", "processor", "count"),
    [
        ({}, {"size": {"longest_edge": 64}}, TiledTokens(32, 64, 4)),
        ({"model_type": "smolvlm"}, {"size": {"longest_edge": 9}, "image_seq_len": 5}, TiledTokens(32, 9, 5)),
        ({}, {"size": {"longest_edge": 64}, "do_image_splitting": False}, TiledTokens(32, 64, 4, is_split=False)),
        ({"model_type": "llava", "vision_config": CLIP}, {}, FixedTokens(576)),
        (
            {"model_type": "llava", "vision_config": CLIP, "vision_feature_select_strategy": "full"},
            {},
            FixedTokens(577),
        ),
        ({"model_type": "llava", "vision_config": PIXTRAL}, {"size": {"longest_edge": 1024}}, RowTokens(14, 1024)),
        ({"model_type": "mistral3", "vision_config": PIXTRAL, "spatial_merge_size": 2}, {}, RowTokens(28, 1540)),
        (
            {"model_type": "qwen2_vl"},
            {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056},
            NativeTokens(28, 3136, 12845056),
        ),
        (
            {"model_type": "qwen3_vl"},
            {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
            NativeTokens(32, 65536, 16777216),
        ),
        ({"model_type": "gemma3", "mm_tokens_per_image": 100}, {}, FixedTokens(106)),
    ],
)
def test_families(tmp_path: Path, config: dict[str, Any], processor: dict[str, Any], count: CountTokens) -> None:
    if config.get("model_type") == "gemma3":
        config = config | {"boi_token_index": image_id(tmp_path)}
    form = form_of(tmp_path / "model", config=config, preprocessor_config=processor)
    assert form is not None
    assert (form.token_id, form.count) == (image_id(tmp_path), count)
    wraps = "qwen" in str(config.get("model_type"))
    assert form.placeholder == ("<|vision_start|><image><|vision_end|>" if wraps else "<image>")


def test_newer_files_have_it_within(tmp_path: Path) -> None:
    nested = {"image_processor": {"size": {"longest_edge": 64}}, "image_seq_len": 9}
    form = form_of(tmp_path / "model", preprocessor_config=None, processor_config=nested)
    assert form is not None
    assert form.count == TiledTokens(32, 64, 9)


def test_models_of_text_and_unknown_families_show_none(tmp_path: Path) -> None:
    assert read_directory(write_directory(tmp_path / "text")).pictures is None
    assert form_of(tmp_path / "unknown", config={"model_type": "blip9"}) is None


def test_the_part_for_text_says_how_long_a_prompt_may_be(tmp_path: Path) -> None:
    assert read_directory(write_vision(tmp_path / "model")).context_length == 256


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"preprocessor_config": None}, r"has a positive size\.longest_edge; fetch it again"),
        ({"preprocessor_config": {"size": {"longest_edge": True}}}, r"has a positive size\.longest_edge"),
        ({"config": {"image_token_id": 30}}, "the token of images, 30, is no control token"),
        ({"config": {"image_token_id": None}}, "image_token_id is missing"),
        (
            {"config": {"text_config": {"model_type": ["a"], "vocab_size": 999}}},
            r"model_type is \['a'\], expected text",
        ),
        (
            {"config": {"model_type": "llava", "vision_config": {"image_size": 14, "patch_size": 0}}},
            "patch_size is 0, expected a positive number",
        ),
        (
            {
                "config": {"model_type": "gemma3", "boi_token_index": 401},
                "preprocessor_config": {"do_pan_and_scan": True},
            },
            "do_pan_and_scan",
        ),
    ],
)
def test_files_that_say_too_little_are_told(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    if "boi_token_index" in changed.get("config", {}):
        changed["config"]["boi_token_index"] = image_id(tmp_path)
    with pytest.raises(ModelFileError, match=why):
        form_of(tmp_path / "model", **changed)

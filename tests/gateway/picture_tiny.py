"""A tiny model directory of a family that reads images, and images as files and as addresses."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image

from tests.gateway.hf_tiny import byte_level, size_of, write_directory

PARTS = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% for part in message.content %}
{% if part.type == 'image' %}{{ '<image>' }}{% else %}{{ part.text }}{% endif %}{% endfor %}{{ '<|im_end|>' + '\n' }}
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""As the templates of LLaVA and Idefics: contents are lists of parts."""
TILE_TOKENS = 4


def write_vision(path: Path, **changed: Any) -> Path:
    """An Idefics 3 of tiles of 32 by 32, without weights; ``changed`` as of `write_directory`."""
    spec = byte_level()
    token = size_of(spec)
    image = {"id": token, "content": "<image>", "single_word": False, "lstrip": False, "rstrip": False}
    tokens = [*spec["added_tokens"], image | {"normalized": False, "special": True}]
    config = {
        "model_type": "idefics3",
        "image_token_id": token,
        "scale_factor": 2,
        "max_position_embeddings": None,
        "text_config": {"model_type": "llama", "max_position_embeddings": 256, "vocab_size": token + 1},
        "vision_config": {"image_size": 32, "patch_size": 8},
    }
    processor = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    return write_directory(
        path,
        tokenizer={"added_tokens": tokens},
        config=config | changed.pop("config", {}),
        template=changed.pop("template", PARTS),
        preprocessor_config=changed.pop("preprocessor_config", processor),
        **changed,
    )


def image_id(path: Path) -> int:
    """The token that stands for an image."""
    del path
    return size_of(byte_level())


def image_file(kind: str = "PNG", size: tuple[int, int] = (48, 40), *, orientation: int = 0, colour: int = 7) -> bytes:
    """Of one colour."""
    file, exif = io.BytesIO(), Image.Exif()
    if orientation:
        exif[ExifTags.Base.Orientation] = orientation
    image = Image.new("RGB", size, (colour, 8, 9))
    if kind == "GIF":  # which has a palette: to find one of a large image takes a second
        image = Image.new("P", size)
        image.putpalette((colour, 8, 9))
    image.save(file, kind, exif=exif)
    return file.getvalue()


def url_of(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

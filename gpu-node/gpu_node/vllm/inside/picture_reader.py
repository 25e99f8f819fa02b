"""Prompts with images: vLLM's own processor of the model reads them, in the engine's process.

It finds the tokens that stand for images, puts as many in their place as the model reads, and makes the numbers that
the model's vision part computes from. In vLLM's caches an image is known by the digest of its file, within a partition
(`Payload.partition`): two images never share KV, and the same one does there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_node.vllm.words.border import PicturesRefusedError, ReadPrompt
from gpu_node.vllm.words.reasons import one_line
from gpu_node.vllm.words.vllm_names import (
    ImageMediaIO,
    MultiModalFeatureSpec,
    argsort_mm_positions,
    renderer_from_config,
)
from shared.config.engines.engine import ModelSpec
from shared.files.vision import has_vision
from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import MAX_PICTURES

_NO_CACHE_GB = 0
"""vLLM's front end would keep what it has made of images, and leave it out where its core has it: two books that have
to agree. The core keeps what the vision part has computed, by itself."""


def picture_arguments(spec: ModelSpec, path: Path) -> dict[str, Any]:
    """Beside those that models of text have, of a model with a vision part; of any other none."""
    if spec.task != "generate" or not has_vision(path):
        return {}
    return {
        "skip_tokenizer_init": False,  # its processor writes what stands around images
        "limit_mm_per_prompt": {"image": MAX_PICTURES, "video": 0, "audio": 0},
        "mm_processor_cache_gb": _NO_CACHE_GB,
    }


class PictureReader:
    """Of one model."""

    def __init__(self, config: Any) -> None:
        self._renderer = renderer_from_config(config)
        self._files = ImageMediaIO()

    def read(self, payload: Payload) -> ReadPrompt:
        """As `gpu_node.vllm.words.border.EngineCore.read_pictures`. Takes some 10 ms an image."""
        try:
            prompt = {
                "prompt_token_ids": payload.prompt_token_ids,
                "multi_modal_data": {"image": [self._files.load_bytes(one.content) for one in payload.pictures]},
                "multi_modal_uuids": {"image": [one.name_in(payload.partition) for one in payload.pictures]},
            }
            (made,) = self._renderer.render_cmpl([prompt])
        except Exception as error:  # of vLLM, of transformers or of the file's decoder, which raise what they like
            raise PicturesRefusedError(f"the images cannot be read: {one_line(str(error))}") from error
        return ReadPrompt(list(made["prompt_token_ids"]), _features(made))


def _features(made: Any) -> tuple[Any, ...]:
    """Of the images, in the order of their places, as vLLM's own front end makes them."""
    return tuple(
        MultiModalFeatureSpec(
            data=made["mm_kwargs"][kind][number],
            modality=kind,
            identifier=made["mm_hashes"][kind][number],
            mm_position=made["mm_placeholders"][kind][number],
            mm_hash=made["mm_hashes"][kind][number],
        )
        for kind, number in argsort_mm_positions(made["mm_placeholders"])
    )

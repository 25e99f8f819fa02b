"""How a model is shown images, by its files: which token stands for one, and how many it reads of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.models.pictures.picture_counts import CountTokens, FixedTokens, NativeTokens, RowTokens, TiledTokens
from shared.files.model_file import ModelFileError
from shared.vocabulary.hf_files import read_json
from shared.vocabulary.hf_vocabulary import HfVocabulary
from shared.vocabulary.model_fields import ModelFields

_REMEDY = "fetch it again with the model's other files: it says how images are read"
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_AROUND_GEMMA = 6  # a mark before and behind an image, and two line's ends on both sides, which may be a token each


@dataclass(frozen=True)
class PictureForm:
    """Of one model."""

    token_id: int
    """Stands for an image in a prompt, alone: a node puts the model's own in its place."""
    placeholder: str
    """Shows an image where the chat template takes texts alone."""
    count: CountTokens
    """What an image is in the place of that token, at most, by width and height."""


def picture_form(directory: Path, config: ModelFields, vocabulary: HfVocabulary) -> PictureForm | None:
    """None of a model that reads no images, or is of a family whose images cannot be counted here.

    `ModelFileError` names the file that is missing or says nothing of use.
    """
    vision = config.section("vision_config")
    family = _FAMILIES.get(config.get("model_type", str) or "")
    if vision is None or family is None:
        return None
    token_key = next((name for name in family.token_keys if name in config.values), family.token_keys[0])
    token_id = config.need(token_key, int)
    name = vocabulary.names.get(token_id)
    if name is None or name not in vocabulary.control:
        # else clients could write it
        raise config.error(f"the token of images, {token_id}, is no control token of the tokenizer")
    files = _processor_files(directory)
    return PictureForm(token_id, family.placeholder.format(token=name), family.count(config, vision, files))


@dataclass(frozen=True)
class _ProcessorFiles:
    """What stands in one of two files, in ``image_processor`` of the newer one, or at its top."""

    files: tuple[ModelFields, ...]
    directory: Path

    def number(self, key: str, default: int | None = None) -> int:
        """A count or a size; `ModelFileError` where no file has it, and there is no default."""
        return self._positive(key, self._found(key), default)

    def edge(self, key: str, name: str, default: int | None = None) -> int:
        """Of a mapping of sizes, such as ``size``."""
        sizes = self._found(key)
        value = sizes.get(name) if isinstance(sizes, dict) else None
        return self._positive(f"{key}.{name}", value, default)

    def is_on(self, key: str, default: bool) -> bool:
        """A switch."""
        value = self._found(key)
        return default if value is None else bool(value)

    def _found(self, key: str) -> object:
        return next((one.values[key] for one in self.files if one.values.get(key) is not None), None)

    def _positive(self, key: str, value: object, default: int | None) -> int:
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            names = " nor ".join(_PROCESSOR_FILES)
            raise ModelFileError(f"{self.directory}: neither {names} has a positive {key}; {_REMEDY}")
        return value


def _processor_files(directory: Path) -> _ProcessorFiles:
    found: list[ModelFields] = []
    for name in _PROCESSOR_FILES:
        if (directory / name).is_file():
            fields = read_json(directory / name, _REMEDY)
            nested = fields.section("image_processor")
            found += [fields] if nested is None else [nested, fields]
    return _ProcessorFiles(tuple(found), directory)


def _edge(fields: ModelFields, key: str) -> int:
    """A number of pixels, or of patches."""
    value = fields.need(key, int)
    if value < 1:
        raise fields.error(f"{key} is {value}, expected a positive number")
    return value


def _llava(config: ModelFields, vision: ModelFields, files: _ProcessorFiles) -> CountTokens:
    if vision.get("model_type", str) == "pixtral":
        return _pixtral(config, vision, files)
    num_patches = (_edge(vision, "image_size") // _edge(vision, "patch_size")) ** 2
    is_full = config.get("vision_feature_select_strategy", str) == "full"
    return FixedTokens(num_patches + is_full)


def _pixtral(config: ModelFields, vision: ModelFields, files: _ProcessorFiles) -> CountTokens:
    merge = _edge(config, "spatial_merge_size") if config.get("spatial_merge_size", int) else 1
    return RowTokens(
        _edge(vision, "patch_size") * merge, files.edge("size", "longest_edge", vision.get("image_size", int))
    )


def _qwen(config: ModelFields, vision: ModelFields, files: _ProcessorFiles) -> CountTokens:
    del config
    patch = files.number("patch_size", vision.get("patch_size", int))
    merge = files.number("merge_size", vision.get("spatial_merge_size", int))
    least = files.number("min_pixels", files.edge("size", "shortest_edge", 56 * 56))
    most = files.number("max_pixels", files.edge("size", "longest_edge", 28 * 28 * 1280))
    return NativeTokens(patch * merge, least, most)


def _idefics(config: ModelFields, vision: ModelFields, files: _ProcessorFiles) -> CountTokens:
    scale = config.get("scale_factor", int) or 1
    edge = _edge(vision, "image_size")
    patches = edge // _edge(vision, "patch_size")
    return TiledTokens(
        files.edge("max_image_size", "longest_edge", edge),
        files.edge("size", "longest_edge"),
        files.number("image_seq_len", patches**2 // scale**2),
        files.is_on("do_image_splitting", default=True),
    )


def _gemma(config: ModelFields, vision: ModelFields, files: _ProcessorFiles) -> CountTokens:
    del vision
    if files.is_on("do_pan_and_scan", default=False):
        raise ModelFileError(f"{files.directory}: do_pan_and_scan is on, which is not counted here; turn it off")
    return FixedTokens(_AROUND_GEMMA + (config.get("mm_tokens_per_image", int) or 256))


@dataclass(frozen=True)
class _Family:
    token_keys: tuple[str, ...]
    """Of ``config.json``, the first that it has."""
    placeholder: str
    count: Callable[[ModelFields, ModelFields, _ProcessorFiles], CountTokens]


_IMAGE = ("image_token_id", "image_token_index")
_QWEN = _Family(_IMAGE, "<|vision_start|>{token}<|vision_end|>", _qwen)
_IDEFICS = _Family(_IMAGE, "{token}", _idefics)
_FAMILIES: Mapping[str, _Family] = {
    "gemma3": _Family(("boi_token_index",), "{token}", _gemma),
    "idefics3": _IDEFICS,
    "llava": _Family(_IMAGE, "{token}", _llava),
    "mistral3": _Family(_IMAGE, "{token}", _pixtral),
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": _QWEN,
    "smolvlm": _IDEFICS,
}
"""By ``model_type``: the families whose images are counted here."""

"""What a directory says of how it embeds texts or scores them, as vLLM does it: in more ways than our engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gpu_node.models.hf.hf_config import CONFIG_FILE, read_json_values
from gpu_node.models.pooling.pooling import stated_modes
from shared.config.engines.engine import ModelSpec
from shared.config.engines.scoring import ScoreOptions
from shared.files.classifier import num_labels_of
from shared.files.encoder import is_encoder_type
from shared.files.model_file import ModelFileError
from shared.vocabulary.hf_vocabulary import read_vocabulary
from shared.vocabulary.token_texts import read_files, token_bytes

PoolingMode = Literal["lasttoken", "mean", "cls"]

_MODES: Final[dict[str, PoolingMode]] = {"lasttoken": "lasttoken", "mean": "mean", "cls": "cls"}
_WAYS: Final = "supported are lasttoken, mean and cls"
_LOGIT_CHANGES: Final = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Of whole logits, in configurations of Gemma, Cohere and Granite; vLLM makes those of labels without them."""


@dataclass(frozen=True, slots=True)
class PooledDirectory:
    """Of one model."""

    mode: PoolingMode | None
    """Which of a text's states is its embedding; None where vLLM's own choice is ours, too."""
    labels: tuple[str, str] | None
    """Of a language model that scores, the tokens for no and yes by their names; None of any other."""


def read_pooled(spec: ModelSpec, path: Path, num_ranks: int) -> PooledDirectory:
    """Of a model that embeds or scores, shared by so many devices.

    `ModelFileError` where vLLM has no such way, or would take another without a word.
    """
    if spec.task == "embed":
        return PooledDirectory(_mode(path), None)
    config = path / CONFIG_FILE
    if spec.task == "classify":
        raise ModelFileError(f"{config}: task: classify is for nodes with engine: treadle")
    values = read_json_values(config)
    if values.get("type_vocab_size") not in (None, 1):
        raise ModelFileError(
            f"{config}: query and document are of two types (type_vocab_size), which texts here are not"
        )
    num_labels = num_labels_of(values)
    if num_labels == 1:
        return PooledDirectory(None, None)
    if num_labels is not None:
        raise ModelFileError(
            f"{config}: it is a classifier with {num_labels} labels; task: score takes one of one label"
        )
    if num_ranks > 1:
        raise ModelFileError(
            f"model {spec.name!r}: vLLM takes the rows of labels from the part of the head that a rank has; "
            "set tensor_parallel: 1, or engine: treadle"
        )
    if changes := [key for key in _LOGIT_CHANGES if values.get(key) not in (None, 1)]:
        raise ModelFileError(f"{config}: vLLM leaves {', '.join(changes)} out of the logits of labels")
    return PooledDirectory(None, _names_of_labels(path, spec.score))


def _mode(path: Path) -> PoolingMode | None:
    stated = stated_modes(path, _WAYS)
    if stated is None:  # vLLM would take an encoder's first token, our engine takes the mean
        return "mean" if is_encoder_type(read_json_values(path / CONFIG_FILE).get("model_type")) else None
    if len(stated.modes) != 1 or not stated.modes <= _MODES.keys():
        raise stated.refused(_WAYS)
    [mode] = stated.modes
    return _MODES[mode]


def _names_of_labels(path: Path, options: ScoreOptions) -> tuple[str, str]:
    files = read_files(path)
    vocabulary = read_vocabulary(files)
    texts = token_bytes(files, vocabulary)
    no, yes = options.labels
    return _name_of(no, texts, vocabulary.names, path), _name_of(yes, texts, vocabulary.names, path)


def _name_of(label: str, texts: list[bytes], names: dict[int, str], path: Path) -> str:
    """Of the first of the tokens that stand for this text, which our own engine takes too."""
    try:
        return names[texts.index(label.encode())]
    except ValueError:
        raise ModelFileError(
            f"{path}: no token stands for {label!r} alone; set score.labels to the texts of the two tokens by which "
            "the model answers no and yes"
        ) from None

"""Whether a model embeds texts, or scores them, as it is done here: by the hidden state of the last token, each token
seeing those before it; of an encoder, by the mean of its tokens' states or by the first token's."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_node.models.architectures.encoder import Pooling
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.config import Family
from gpu_node.models.fields import Fields
from gpu_node.models.hf.hf_config import CONFIG_FILE, read_json_list, read_json_values
from shared.files.model_file import ModelFileError

MODULES_FILE = "modules.json"
"""What sentence-transformers does with a text, in its order."""

_GGUF_POOLING: Final = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_GGUF_CAUSAL: Final = frozenset({"none", "last"})
_LAST: Final = "lasttoken"
_FLAG: Final = "pooling_mode_"
_PLAIN_MODULES: Final = {"Transformer", "Normalize"}
_ONLY_LAST = "task: embed takes the last token's state alone"
_ENCODER_WAYS = "task: embed takes the mean over an encoder's tokens, or the first token's state (cls)"


def check_pooling(checkpoint: Checkpoint) -> None:
    """`ModelFileError` where the model's files say that its embeddings are made in another way."""
    check_causal(checkpoint, _ONLY_LAST)
    if checkpoint.gguf is not None:
        _check_gguf(checkpoint.gguf.metadata.get, checkpoint.path)
    elif (stated := stated_modes(checkpoint.path, _ONLY_LAST)) is not None and stated.modes - {_LAST}:
        raise stated.refused(_ONLY_LAST)


def encoder_pooling(checkpoint: Checkpoint) -> Pooling:
    """How an encoder's files say that its embeddings are made; the mean where they say nothing, as
    sentence-transformers has it for them. `ModelFileError` for another way."""
    if checkpoint.gguf is not None:
        return _gguf_encoder_pooling(checkpoint.gguf.metadata.get, checkpoint.path)
    stated = stated_modes(checkpoint.path, _ENCODER_WAYS)
    if stated is None or not stated.modes:
        return Pooling.MEAN
    if len(stated.modes) > 1 or not stated.modes <= set(Pooling):
        raise stated.refused(_ENCODER_WAYS)
    return Pooling(*stated.modes)


def classifier_pooling(checkpoint: Checkpoint) -> Pooling:
    """Which of an encoder's states its classifier reads; `ModelFileError` for a head of another make."""
    if checkpoint.config.family is not Family.MODERN_BERT:
        return Pooling.CLS
    if checkpoint.gguf is not None:
        raise ModelFileError(
            f"{checkpoint.path}: a GGUF file does not say of which states a ModernBERT makes its labels; serve the "
            "directory in Hugging Face layout"
        )
    path = checkpoint.path / CONFIG_FILE
    fields = Fields(read_json_values(path).get, path)
    activation, pooling = fields.text("classifier_activation", "gelu"), fields.text("classifier_pooling", "cls")
    if activation != "gelu":
        raise fields.error(f"classifier_activation {activation!r} is not supported; 'gelu' is")
    if fields.flag("classifier_bias", default=False):
        raise fields.error("classifier_bias is not supported")
    if pooling not in list(Pooling):
        raise fields.error(f"classifier_pooling {pooling!r} is not supported; 'mean' and 'cls' are")
    return Pooling(pooling)


@dataclass(frozen=True, slots=True)
class StatedModes:
    """How a file of sentence-transformers' says that states are pooled."""

    path: Path
    written: frozenset[str]
    """As it says it: newer files name one, older ones have a flag for each."""

    @property
    def modes(self) -> frozenset[str]:
        """``mean``, ``cls``, ``lasttoken`` and others, by one name each."""
        return frozenset(mode.removesuffix("_tokens").removesuffix("_token") for mode in self.written)

    def refused(self, takes: str) -> ModelFileError:
        """``takes``: what is supported in the place of these."""
        found = ", ".join(sorted(self.written)) or "nothing"
        return ModelFileError(f"{self.path}: its embeddings are pooled by {found}; {takes}")


def stated_modes(directory: Path, takes: str) -> StatedModes | None:
    """None where no file says any; `ModelFileError` for what is neither a model nor pools nor normalises."""
    if not (directory / MODULES_FILE).is_file():
        return None
    path = _check_modules(directory, takes)
    return None if path is None else StatedModes(path, frozenset(_pooling_modes(path)))


def check_causal(checkpoint: Checkpoint, takes: str) -> None:
    """`ModelFileError` where the model's tokens see those behind them; ``takes``: what is done with others."""
    if checkpoint.gguf is not None:
        fields = Fields(checkpoint.gguf.metadata.get, checkpoint.path)
        flag = f"{fields.text('general.architecture', default='')}.attention.causal"
    else:
        path = checkpoint.path / CONFIG_FILE
        fields, flag = Fields(read_json_values(path).get, path), "is_causal"
    if not fields.flag(flag, default=True):
        raise fields.error(f"its tokens see those behind them ({flag}); {takes}")


def _check_gguf(lookup: Callable[[str], object], path: Path) -> None:
    fields = Fields(lookup, path)
    pooling = _gguf_pooling(fields)
    if pooling is not None and pooling not in _GGUF_CAUSAL:
        raise _pooled_otherwise(fields, pooling, _ONLY_LAST)


def _gguf_encoder_pooling(lookup: Callable[[str], object], path: Path) -> Pooling:
    fields = Fields(lookup, path)
    pooling = _gguf_pooling(fields)
    if pooling is None:
        return Pooling.MEAN
    if pooling not in list(Pooling):
        raise _pooled_otherwise(fields, pooling, _ENCODER_WAYS)
    return Pooling(pooling)


def _gguf_pooling(fields: Fields) -> str | None:
    """None where the file says nothing."""
    key = f"{fields.text('general.architecture', default='')}.pooling_type"
    number = fields.optional_index(key)
    return None if number is None else _GGUF_POOLING.get(number, f"number {number}")


def _pooled_otherwise(fields: Fields, pooling: str, takes: str) -> ModelFileError:
    return fields.error(f"its embeddings are pooled by {pooling!r} (pooling_type); {takes}")


def _check_modules(directory: Path, takes: str) -> Path | None:
    """The file that says how states are pooled, if any does; `ModelFileError` for a module that is not known here."""
    path, pooling = directory / MODULES_FILE, None
    for number, module in enumerate(read_json_list(path)):
        fields = Fields(module.get, path)
        name = fields.text("type", default="").rpartition(".")[2]
        if name == "Pooling":
            pooling = directory / fields.text("path", default="") / CONFIG_FILE
        elif name not in _PLAIN_MODULES:
            raise fields.error(f"module {number} is {reprlib.repr(name)}, which is not supported; {takes}")
    return pooling


def _pooling_modes(path: Path) -> set[str]:
    values = read_json_values(path)
    modes = {key.removeprefix(_FLAG) for key, value in values.items() if key.startswith(_FLAG) and value}
    mode = Fields(values.get, path).text("pooling_mode", default="")
    return modes | {mode} if mode else modes

"""Whether a model embeds texts, or scores them, as it is done here: by the hidden state of the last token, each token
seeing those before it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.fields import Fields
from gpu_node.models.hf.hf_config import CONFIG_FILE, read_json_list, read_json_values

MODULES_FILE = "modules.json"
"""What sentence-transformers does with a text, in its order."""

_GGUF_POOLING: Final = {1: "mean", 2: "cls", 4: "rank"}
_LAST: Final = "lasttoken"
_FLAG: Final = "pooling_mode_"
_PLAIN_MODULES: Final = {"Transformer", "Normalize"}
_ONLY_LAST = "task: embed takes the last token's state alone"


def check_pooling(checkpoint: Checkpoint) -> None:
    """`ModelFileError` where the model's files say that its embeddings are made in another way."""
    check_causal(checkpoint, _ONLY_LAST)
    if checkpoint.gguf is not None:
        _check_gguf(checkpoint.gguf.metadata.get, checkpoint.path)
    elif (checkpoint.path / MODULES_FILE).is_file():
        _check_modules(checkpoint.path)


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
    arch = fields.text("general.architecture", default="")
    pooling = _GGUF_POOLING.get(fields.index(f"{arch}.pooling_type", default=0))
    if pooling is not None:
        raise fields.error(f"its embeddings are pooled by {pooling!r} (pooling_type); {_ONLY_LAST}")


def _check_modules(directory: Path) -> None:
    path = directory / MODULES_FILE
    for number, module in enumerate(read_json_list(path)):
        fields = Fields(module.get, path)
        name = fields.text("type", default="").rpartition(".")[2]
        if name == "Pooling":
            _check_pooling_module(directory / fields.text("path", default="") / CONFIG_FILE)
        elif name not in _PLAIN_MODULES:
            raise fields.error(f"module {number} is {reprlib.repr(name)}, which is not supported; {_ONLY_LAST}")


def _check_pooling_module(path: Path) -> None:
    """Newer files name the mode, older ones have a flag for each."""
    values = read_json_values(path)
    fields = Fields(values.get, path)
    modes = {key.removeprefix(_FLAG) for key, value in values.items() if key.startswith(_FLAG) and value}
    modes.add(fields.text("pooling_mode", default=_LAST))
    if modes - {_LAST}:
        raise fields.error(f"its embeddings are pooled by {', '.join(sorted(modes))}; {_ONLY_LAST}")

"""The LoRA adapters of a model as vLLM is told of them; knows their files, and nothing of vLLM itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from gpu_node.executors.memory.kv_identity import adapter_weights
from gpu_node.models.adapters.adapter_config import CONFIG_FILE, AdapterConfig, read_adapter_config
from gpu_node.models.adapters.adapter_file import OUTER, WEIGHTS_FILE, A, B
from gpu_node.models.adapters.adapters import opened_adapters
from gpu_node.vllm.inside.adapter_shapes import ModelModules, check_shapes
from gpu_node.vllm.words.adapters import CoreAdapter, ReadAdapters
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import AdapterFilesError, ModelFileError, model_path

_OF_NO_MODEL = "none.base_layer"


class AdapterReader:
    """Of one model, whose files are asked once."""

    def __init__(self, model: Path) -> None:
        """``model``: its directory."""
        self._model = model

    @staticmethod
    def ranks(spec: ModelSpec) -> list[int]:
        """Of the model's adapters, as far as they say; what is wrong with the others is told when they are read."""
        found = []
        for one in spec.adapters:
            with suppress(ModelFileError):
                found.append(_rank(read_adapter_config(model_path(one))))
        return found

    def read(self, spec: ModelSpec, held: Sequence[CoreAdapter] = ()) -> ReadAdapters:
        """The model's adapters; what else vLLM does not take of them, it says when it loads them.

        Those that are ``held`` under their names are not read again.
        """
        by_name = {one.name: one for one in held}
        found: list[CoreAdapter] = []
        problems: dict[str, str] = {}
        for one in spec.adapters:
            if one.name in by_name:
                found.append(by_name[one.name])
                continue
            try:
                found += opened_adapters(replace(spec, adapters=(one,)), self._opened)
            except AdapterFilesError as error:
                problems |= error.problems
        return ReadAdapters(tuple(found), problems)

    @cached_property
    def _modules(self) -> ModelModules:
        return ModelModules(self._model)

    def _opened(self, one: AdapterSpec, path: Path) -> CoreAdapter:
        config = read_adapter_config(path)
        check_shapes(path, config, self._modules)
        (layout,) = adapter_weights(ModelSpec(name="", source="", adapters=(one,)))
        return CoreAdapter(one.name, path.absolute(), _rank(config), layout)


def _rank(config: AdapterConfig) -> int:
    """The largest of its modules'."""
    return max((config.rank, *config.ranks.values()))


def write_empty_adapter(folder: Path) -> Path:
    """An adapter that changes nothing, for a place of vLLM's that is to stay empty.

    vLLM takes none without a module, nor one whose modules are all called as no model's are, unless by this name.
    """
    folder.mkdir(exist_ok=True)
    values = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": [_OF_NO_MODEL]}
    (folder / CONFIG_FILE).write_text(json.dumps(values))
    matrices = {f"{OUTER}{_OF_NO_MODEL}{matrix}": np.zeros((1, 1), np.float32) for matrix in (A, B)}
    save_file(matrices, folder / WEIGHTS_FILE)
    return folder

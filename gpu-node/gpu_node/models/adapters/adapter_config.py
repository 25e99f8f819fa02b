"""What adapter_config.json says (the layout of Hugging Face's PEFT), as far as it is used; the rest is refused."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_node.models.fields import Fields, Number
from gpu_node.models.hf.hf_config import read_json_values
from shared.config.engines.adapters import MAX_RANK

CONFIG_FILE = "adapter_config.json"

_UNSUPPORTED = (
    "alora_invocation_tokens",
    "lora_bias",
    "megatron_config",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "use_dora",
    "use_qalora",
)
"""Keys of what changes numbers in other ways; unset, null, false or empty they ask for nothing."""
_CHANGING_BEGINNINGS = ("corda", "loftq", "lora_ga", "olora", "pissa")
"""Ways to begin a training that take what A and B begin with off the model's own weights; PEFT does so again when it
loads such an adapter, unless it was saved as one for the model as it was."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Ranks and scales: the change of a module with matrices A and B is ``scale * B A``."""

    path: Path
    rank: int
    alpha: float
    ranks: Mapping[str, int]
    """Of modules whose names end like a pattern, instead of ``rank``."""
    alphas: Mapping[str, float]
    """Likewise."""
    by_root: bool
    """Scales are alpha over the rank's root (Kalajdzievski, 2023), not over the rank (Hu et al., ICLR'22, §4.1)."""

    def rank_of(self, module: str) -> int:
        """Rank of the matrices of a module."""
        return self.ranks.get(_pattern_of(module, self.ranks), self.rank)

    def scale_of(self, module: str) -> float:
        """By which its change is multiplied."""
        alpha = self.alphas.get(_pattern_of(module, self.alphas), self.alpha)
        rank = self.rank_of(module)
        return alpha / math.sqrt(rank) if self.by_root else alpha / rank


def read_adapter_config(directory: Path) -> AdapterConfig:
    """Read the configuration of the adapter in ``directory``; `ModelFileError` names the key that cannot be used."""
    path = directory / CONFIG_FILE
    values = read_json_values(path)
    fields = Fields(values.get, path)
    kind = fields.text("peft_type", "LORA")
    if kind.upper() != "LORA":
        raise fields.error(f"peft_type is {kind!r}; only LORA is supported")
    for key in _UNSUPPORTED:
        if values.get(key):
            raise fields.error(f"{key} is not supported; train the adapter without it, or merge it into the model")
    begins = values.get("init_lora_weights")
    if isinstance(begins, str) and begins.lower().startswith(_CHANGING_BEGINNINGS):
        raise fields.error(
            f"init_lora_weights is {begins!r}, which changes the model's own weights; save the adapter for the model "
            "as it was (PEFT: path_initial_model_for_weight_conversion)"
        )
    if (bias := fields.text("bias", "none")) != "none":
        raise fields.error(f"bias is {bias!r}; only adapters that leave biases alone are supported")
    config = AdapterConfig(
        path=path,
        rank=fields.number("r", int, 8, most=MAX_RANK),
        alpha=fields.number("lora_alpha", float, 8.0),
        ranks=_numbers(fields, "rank_pattern", values, int),
        alphas=_numbers(fields, "alpha_pattern", values, float),
        by_root=fields.flag("use_rslora", default=False),
    )
    for key, patterns in (("rank_pattern", config.ranks), ("alpha_pattern", config.alphas)):
        for pattern in patterns:
            _check_pattern(pattern, fields, key)
    return config


def _numbers(fields: Fields, key: str, values: Mapping[str, object], kind: type[Number]) -> dict[str, Number]:
    found = values.get(key) or {}
    if not isinstance(found, dict):
        raise fields.error(f"{key} is no mapping of modules to numbers")
    inner = Fields(found.get, fields.path)
    most = MAX_RANK if kind is int else 1 << 31
    return {name: inner.number(name, kind, most=most) for name in found}


def _check_pattern(pattern: str, fields: Fields, key: str) -> None:
    try:
        re.compile(_ending(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise fields.error(
            f"{key}: {reprlib.repr(pattern)} is no regular expression of an end of a name ({error})"
        ) from error


def _pattern_of(module: str, patterns: Mapping[str, object]) -> str:
    """The first of ``patterns`` that the module's name is, or ends with behind a dot; else the name itself."""
    return next((one for one in patterns if re.fullmatch(_ending(one), module)), module)


def _ending(pattern: str) -> str:
    return rf"(.*\.)?(?:{pattern})"

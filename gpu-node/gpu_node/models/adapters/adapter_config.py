"""What adapter_config.json says (the layout of Hugging Face's PEFT), as far as it is used; the rest is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_node.models.fields import Fields, Number
from gpu_node.models.hf.hf_config import read_json_values
from shared.config.adapters import MAX_RANK

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
        re.compile(pattern)
    except re.error as error:
        raise fields.error(f"{key}: {pattern!r} is no regular expression ({error})") from error


def _pattern_of(module: str, patterns: Mapping[str, object]) -> str:
    """The first of ``patterns`` that the module's name is, or ends with behind a dot; else the name itself."""
    return next((one for one in patterns if re.fullmatch(rf"(.*\.)?(?:{one})", module)), module)

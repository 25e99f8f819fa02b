"""The LoRA adapters of a model as vLLM is told of them; knows their files, and nothing of vLLM itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_node.models.adapters.adapter_config import read_adapter_config
from gpu_node.models.adapters.adapters import opened_adapters
from gpu_node.vllm.inside.adapter_shapes import ModelModules, check_shapes
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Most that adapters' ranks may be, of which vLLM takes one; the last is `shared.config.engines.adapters.MAX_RANK`."""


@dataclass(frozen=True, slots=True)
class CoreAdapter:
    """One adapter of a model."""

    name: str
    number: int
    """Its place in the configuration, from 1 on; 0 is the model itself to vLLM."""
    path: Path
    """Absolute: vLLM asks the network for what it does not find."""
    rank: int
    """The largest of its modules'."""


def core_adapters(spec: ModelSpec, model: Path) -> tuple[CoreAdapter, ...]:
    """Those of a model in the directory ``model``, in the order of its configuration.

    `ModelFileError` says all that cannot be used; what else vLLM does not take of them, it says when it loads them.
    """
    if not spec.adapters:
        return ()
    modules = ModelModules(model)
    numbers = {one.name: number for number, one in enumerate(spec.adapters, 1)}

    def opened(one: AdapterSpec, path: Path) -> CoreAdapter:
        config = read_adapter_config(path)
        check_shapes(path, config, modules)
        return CoreAdapter(one.name, numbers[one.name], path.absolute(), max((config.rank, *config.ranks.values())))

    return tuple(opened_adapters(spec, opened))


def max_rank(adapters: Iterable[CoreAdapter]) -> int:
    """The least of `RANKS` that has room for all of them."""
    largest = max(one.rank for one in adapters)
    return next(rank for rank in RANKS if rank >= largest)


def num_slots(num_adapters: int, *, is_cpu: bool) -> int:
    """Adapters that vLLM makes room for: all, so that none waits for another to leave.

    On processors one more, which stays empty: vLLM's operators there take the last one's matrices for rows of the model
    itself, whose number is -1 (`vllm.lora.ops.torch_ops`), and those are zeros then.
    """
    return num_adapters + is_cpu

"""Predictors of what giving way costs, as `treadle profile` keeps them: JSON files.

One a kind of device and model; and, fitted to several models, one a kind of device.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError

FORMAT = "treadle predictor 2"
DEVICE_FORMAT = "treadle device predictor 1"


_Kept = TypeVar("_Kept", "Predictor", "DevicePredictor")


class PredictorError(OperatorError, ValueError):
    """A file that is no predictor of this device and model; the text says what to do."""


class PredictorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cost by size, and where it comes from."""

    sizes: list[float]
    """Tokens or blocks, growing."""
    seconds: list[float]
    regressor: str
    degree: int
    held_out_error: float
    """Mean of |predicted / measured - 1| over sizes that it was not fitted to."""
    repeatability: float
    """Mean of |measured / median - 1| over repetitions of these: no predictor can be held to less."""


class ShapeTables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of one shape of model."""

    num_layers: int
    hidden_size: int
    prompt: PredictorTable
    """A prompt step alone, by tokens."""
    chunk: PredictorTable
    """What a prompt adds to steps in which others decode."""
    move_out: PredictorTable
    """By blocks."""
    move_in: PredictorTable
    store_out: PredictorTable | None = None
    """From host memory to the SSD, where there was one."""
    store_in: PredictorTable | None = None


class Predictor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs as they were measured, of one model on one kind of node."""

    format: str = FORMAT
    model: str
    source: str
    weights: str
    device: str
    executor: str
    num_threads: int
    tensor_parallel: int
    block_size: int
    tables: ShapeTables


class PredictedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that a device's predictor speaks of, measured or not."""

    source: str
    weights: str
    tables: ShapeTables
    """As a regression over several models says."""


class DevicePredictor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one kind of node, fitted to several models, for those that were not measured there."""

    format: str = DEVICE_FORMAT
    device: str
    executor: str
    num_threads: int
    tensor_parallel: int
    block_size: int
    measured: list[str]
    """The models that it was fitted to."""
    models: dict[str, PredictedModel]
    """By name."""

    def tables(self, spec: ModelSpec) -> ShapeTables | None:
        """Of a model; None where it does not speak of it."""
        found = self.models.get(spec.name)
        return found.tables if found and (found.source, found.weights) == (spec.source, spec.weights) else None


def device_predictor_file(config: ClusterConfig, device: str) -> Path:
    """Where the predictor of a kind of device is."""
    return config.data_dir.expanduser() / "predictors" / f"{_file_name(device)}.json"


def predictor_file(config: ClusterConfig, device: str, model: str) -> Path:
    """Where the predictor of a model on a kind of device is."""
    name = "--".join(map(_file_name, (device, model)))
    return config.data_dir.expanduser() / "predictors" / f"{name}.json"


def _file_name(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", part)


def encode_predictor(predictor: Predictor | DevicePredictor) -> str:
    """The content of a file."""
    return msgspec.json.format(msgspec.json.encode(predictor), indent=2).decode() + "\n"


def read_predictor(path: Path, config: ClusterConfig, spec: ModelSpec, node: NodeSpec, device: str) -> Predictor | None:
    """The predictor of a file; None where there is none. `PredictorError` where it is of something else."""
    wanted = {
        "format": FORMAT,
        "model": spec.name,
        "source": spec.source,
        "weights": spec.weights,
        **_kind_of_node(config, node, device),
    }
    return _read(path, Predictor, wanted, f"delete it, or run `treadle profile --model {spec.name}` again")


def read_device_predictor(path: Path, config: ClusterConfig, node: NodeSpec, device: str) -> DevicePredictor | None:
    """The predictor of a file; None where there is none. `PredictorError` where it is of something else."""
    wanted = {"format": DEVICE_FORMAT, **_kind_of_node(config, node, device)}
    return _read(path, DevicePredictor, wanted, "delete it, or run `treadle profile` with several --model again")


def _kind_of_node(config: ClusterConfig, node: NodeSpec, device: str) -> dict[str, object]:
    """What costs that were measured on such a node hang on."""
    return {
        "device": device,
        "executor": node.executor,
        "num_threads": node.num_threads,
        "tensor_parallel": node.tensor_parallel,
        "block_size": config.engine.block_size,
    }


def _read(path: Path, kind: type[_Kept], wanted: dict[str, object], what_to_do: str) -> _Kept | None:
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PredictorError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise PredictorError(f"{path}: holds no predictor of treadle ({error}); {what_to_do}") from error
    wrong = [
        f"{name} {getattr(kept, name)!r} instead of {value!r}"
        for name, value in wanted.items()
        if getattr(kept, name) != value
    ]
    if wrong:
        raise PredictorError(f"{path}: a predictor of another kind ({', '.join(wrong)}); {what_to_do}")
    return kept

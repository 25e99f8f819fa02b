"""Predictors of what giving way costs, as `treadle profile` keeps them: a JSON file a device kind and model."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from shared.config.config import ClusterConfig
from shared.config.engine import ModelSpec
from shared.config.nodes import NodeSpec
from shared.errors import OperatorError

FORMAT = "treadle predictor 1"


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


class Predictor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one model on one kind of node."""

    format: str = FORMAT
    model: str
    source: str
    weights: str
    device: str
    executor: str
    num_threads: int
    tensor_parallel: int
    num_layers: int
    hidden_size: int
    block_size: int
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


def predictor_file(config: ClusterConfig, device: str, model: str) -> Path:
    """Where the predictor of a model on a kind of device is."""
    name = "--".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in (device, model))
    return config.data_dir.expanduser() / "predictors" / f"{name}.json"


def encode_predictor(predictor: Predictor) -> str:
    """The content of a file."""
    return msgspec.json.format(msgspec.json.encode(predictor), indent=2).decode() + "\n"


def read_predictor(path: Path, config: ClusterConfig, spec: ModelSpec, node: NodeSpec, device: str) -> Predictor | None:
    """The predictor of a file; None where there is none. `PredictorError` where it is of something else."""
    try:
        predictor = msgspec.json.decode(path.read_bytes(), type=Predictor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PredictorError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise PredictorError(f"{path}: holds no predictor of treadle ({error}); {_what_to_do(spec)}") from error
    wanted = {
        "format": FORMAT,
        "model": spec.name,
        "source": spec.source,
        "weights": spec.weights,
        "device": device,
        "executor": node.executor,
        "num_threads": node.num_threads,
        "tensor_parallel": node.tensor_parallel,
        "block_size": config.engine.block_size,
    }
    wrong = [
        f"{name} {getattr(predictor, name)!r} instead of {value!r}"
        for name, value in wanted.items()
        if getattr(predictor, name) != value
    ]
    if wrong:
        raise PredictorError(f"{path}: a predictor of another kind ({', '.join(wrong)}); {_what_to_do(spec)}")
    return predictor


def _what_to_do(spec: ModelSpec) -> str:
    return f"delete it, or run `treadle profile --model {spec.name}` again"

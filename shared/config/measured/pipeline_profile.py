"""What `treadle profile --kernels` and `--interference` measure: times of a layer's operators, and what they keep.

A JSON file a device kind and model, read by ``treadle pipeline search --profile``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from shared.config.config import ClusterConfig
from shared.errors import OperatorError

FORMAT = "treadle pipeline profile 2"
LEAST_S, MOST_S = 1e-9, 1e3
"""Of one operator in one layer: what is outside was not measured."""

CountFromOne = Annotated[int, msgspec.Meta(ge=1)]
NumThreads = Annotated[int, msgspec.Meta(ge=1, le=256)]
KeptSpeed = Annotated[float, msgspec.Meta(gt=0)]
"""Part of a speed."""


class PipelineProfileError(OperatorError, ValueError):
    """A file that is no profile of this device and model; the text says what to do."""


class OperatorTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best time of an operator within its layer, with the whole device."""

    name: str
    """As in a pipeline: KQV, DecAttn, PfAttn, O, UGD."""
    context_tokens: Annotated[int, msgspec.Meta(ge=0)]
    """That each row of attention reads, about; 0 for products."""
    rows: CountFromOne
    seconds: float
    """Of one layer."""


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A product beside something of another lane, each with a part of the device's threads."""

    lane: Literal["memory", "network", "copy"]
    """Of the other."""
    rows: CountFromOne
    context_tokens: Annotated[int, msgspec.Meta(ge=0)]
    num_threads: NumThreads
    """The other's; the product has the rest."""
    product_performance: KeptSpeed
    """Of its best speed with the whole device."""
    performance: KeptSpeed
    """The other's, likewise."""


class PipelineProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one model on one kind of device."""

    format: str = FORMAT
    model: str
    source: str
    weights: str
    device: str
    num_threads: NumThreads
    level: str
    """Of the device's kernels."""
    kernels: str
    """Their level, and a digest of their sources and of how these were compiled: times are stale where it differs."""
    num_layers: CountFromOne
    hidden_size: CountFromOne
    granule_rows: CountFromOne
    """Sizes of parts are multiples of it."""
    copy_bytes_per_s: Annotated[float, msgspec.Meta(ge=0)]
    """Of keys and values, by one thread; 0.0 until pairs are measured."""
    operators: list[OperatorTime]
    pairs: list[Pair]

    @property
    def key(self) -> tuple[object, ...]:
        """What has to be the same for two measurements to belong together."""
        return (self.model, self.source, self.weights, self.device, self.num_threads, self.kernels, self.num_layers)

    @property
    def title(self) -> str:
        """What a pipeline says of where its times come from."""
        return f"measured: {self.model} ({self.weights}) on {self.num_threads} threads of {self.device} ({self.level})"

    def require(self, model: str, device: str) -> None:
        """Raise `PipelineProfileError` unless it is of this model and kind of device."""
        for name, found, wanted in (("model", self.model, model), ("device", self.device, device)):
            if found != wanted:
                raise PipelineProfileError(f"the profile is of {name} {found!r}, not {wanted!r}; {MEASURE} there")


def pipeline_profile_file(config: ClusterConfig, device: str, model: str) -> Path:
    """Where the profile of a model on a kind of device is."""
    name = "--".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in (device, model))
    return config.data_dir.expanduser() / "pipeline-profiles" / f"{name}.json"


def encode_pipeline_profile(profile: PipelineProfile) -> str:
    """The content of a file."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=2).decode() + "\n"


def read_pipeline_profile(path: Path) -> PipelineProfile:
    """The profile of a file; `PipelineProfileError` where there is none."""
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=PipelineProfile)
    except OSError as error:
        raise PipelineProfileError(f"{path}: cannot be read: {error.strerror}; {MEASURE}") from error
    except msgspec.DecodeError as error:
        raise PipelineProfileError(f"{path}: holds no profile of operators ({error}); {MEASURE}") from error
    if profile.format != FORMAT:
        raise PipelineProfileError(f"{path}: has the format {profile.format!r}, not {FORMAT!r}; {MEASURE}")
    if not all(LEAST_S <= time.seconds <= MOST_S for time in profile.operators):
        raise PipelineProfileError(f"{path}: an operator takes no time, or no end; {MEASURE}, while nothing else runs")
    return profile


MEASURE = "measure it with `treadle profile --kernels --interference`"

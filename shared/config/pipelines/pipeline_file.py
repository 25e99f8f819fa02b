"""A pipeline as a file: which parts of a layer's operators run when, in which lane, with which part of the device.

Written by ``treadle pipeline search``, read where an engine starts; in the standard library alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from shared.errors import OperatorError

FORMAT = "treadle pipeline 2"
LANES = ("compute", "memory", "network", "copy")
PUBLISHED = "NanoFlow, tables 2 and 3 (A100)"
"""The profile of a pipeline whose times and interference have not been measured."""
PUBLISHED_DEVICE = "a100"
"""That these are of."""
SEARCH_AGAIN = "search again with `treadle pipeline search`"


class PipelineError(OperatorError, ValueError):
    """A file that holds no pipeline, or one of something else; the text says what to do."""


@dataclass(frozen=True, slots=True)
class PipelineOperator:
    """A part of an operator, in every layer alike."""

    name: str
    """Of the operator; its parts have one name."""
    rows: tuple[int, int]
    """[first, end) of the batch."""
    lane: str
    r: float
    """Part of the device, above 0 and at most 1."""
    start_s: float
    end_s: float
    """From the start of the layer; what is later than a layer's time overlaps the next layer."""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A pipeline, and what it was searched for."""

    format: str
    model: str
    device: str
    num_devices: int
    rows: int
    """Of each step."""
    profile: str
    """Where the times of operators come from."""
    gap: float
    """How far the time of a layer may be above the least with this order, as a share of it."""
    layer_s: float
    sequential_s: float
    operators: tuple[PipelineOperator, ...]
    kernels: str = ""
    """What `PipelineProfile.kernels` says of the times; empty where they have not been measured."""

    def require(self, model: str, device: str, num_devices: int, rows: int) -> None:
        """Raise `PipelineError` unless it was searched for just this."""
        wanted = {"model": model, "device": device, "num_devices": num_devices, "rows": rows}
        for name, value in wanted.items():
            if (found := getattr(self, name)) != value:
                raise PipelineError(f"the pipeline is for {name} {found!r}, not {value!r}; {SEARCH_AGAIN}")

    def require_kernels(self, kernels: str) -> None:
        """Raise `PipelineError` where its times are stale: those of other kernels than the device has now."""
        if not self.is_by(kernels):
            raise PipelineError(
                f"the pipeline rests on times of kernels {self.kernels!r}, and this engine has {kernels!r}; measure "
                f"again with `treadle profile --kernels --interference`, and {SEARCH_AGAIN}"
            )

    def require_published(self) -> None:
        """Raise `PipelineError` unless it is about devices as they are predicted, by published numbers."""
        if self.profile != PUBLISHED:
            raise PipelineError(
                f"the pipeline's times are {self.profile!r}; a predicted device has {PUBLISHED!r}; {SEARCH_AGAIN}, "
                "without --profile"
            )

    def is_by(self, kernels: str) -> bool:
        """Whether its times are of these kernels, or of none."""
        return self.kernels in ("", kernels)

    @property
    def is_of_its_device(self) -> bool:
        """Whether what it rests on is known of the device that it is for, not of another one."""
        return self.profile != PUBLISHED or self.device == PUBLISHED_DEVICE


def encode_pipeline(pipeline: PipelineFile) -> str:
    """The content of a file."""
    return json.dumps(asdict(pipeline), indent=2) + "\n"


def read_pipeline(path: Path) -> PipelineFile:
    """The pipeline of a file, checked; `PipelineError` says what is wrong with it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path}: is no JSON ({error}); {SEARCH_AGAIN}") from error
    try:
        pipeline = _decode(raw)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise PipelineError(f"{path}: holds no pipeline ({error}); {SEARCH_AGAIN}") from error
    if pipeline.format != FORMAT:
        raise PipelineError(f"{path}: has the format {pipeline.format!r}, not {FORMAT!r}; {SEARCH_AGAIN}")
    for problem in _problems(pipeline):
        raise PipelineError(f"{path}: {problem}; {SEARCH_AGAIN}")
    return pipeline


def _decode(raw: Any) -> PipelineFile:
    if not isinstance(raw, dict):
        raise TypeError("not an object")
    operators = tuple(
        PipelineOperator(
            name=str(one["name"]),
            rows=(int(one["rows"][0]), int(one["rows"][1])),
            lane=str(one["lane"]),
            r=float(one["r"]),
            start_s=float(one["start_s"]),
            end_s=float(one["end_s"]),
        )
        for one in raw["operators"]
    )
    known = {field.name for field in fields(PipelineFile)}
    if unknown := sorted(set(raw) - known):
        raise ValueError(f"unknown key {unknown[0]!r}")
    return PipelineFile(
        format=str(raw["format"]),
        model=str(raw["model"]),
        device=str(raw["device"]),
        num_devices=int(raw["num_devices"]),
        rows=int(raw["rows"]),
        profile=str(raw["profile"]),
        gap=float(raw["gap"]),
        layer_s=float(raw["layer_s"]),
        sequential_s=float(raw["sequential_s"]),
        operators=operators,
        kernels=str(raw["kernels"]),
    )


def _problems(pipeline: PipelineFile) -> list[str]:
    """What no search writes: rows twice or outside of the batch, times that end before they begin."""
    problems = []
    if not pipeline.operators:
        problems.append("it has no operators")
    for name, seconds in (("layer_s", pipeline.layer_s), ("sequential_s", pipeline.sequential_s)):
        if not 0 < seconds < math.inf:
            problems.append(f"{name}: a layer takes some time, not {seconds}")
    if not pipeline.gap >= 0:
        problems.append(f"gap: a share of a layer's time, not {pipeline.gap}")
    covered: dict[str, list[tuple[int, int]]] = {}
    for one in pipeline.operators:
        if one.lane not in LANES:
            problems.append(f"{one.name}: no lane {one.lane!r} is known; there are {', '.join(LANES)}")
        if not 0 <= one.rows[0] < one.rows[1] <= pipeline.rows:
            problems.append(f"{one.name}: rows {one.rows[0]} to {one.rows[1]} are not in a batch of {pipeline.rows}")
        if not 0 < one.r <= 1:
            problems.append(f"{one.name}: a part of the device is above 0 and at most 1, not {one.r}")
        if not 0 <= one.start_s < one.end_s < math.inf:
            problems.append(f"{one.name}: ends before it starts, or never")
        covered.setdefault(one.name, []).append(one.rows)
    for name, ranges in covered.items():
        ranges.sort()
        if any(low[1] != high[0] for low, high in pairwise(ranges)):
            problems.append(f"{name}: its parts leave rows out, or have some twice")
    return problems

"""What the options of `treadle sim` and `treadle plan` say of devices, classes and workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from cli.errors import CliError
from services.simulator.catalogue import MAX_MODEL_LEN
from services.simulator.workloads.arrivals import Mix
from services.simulator.workloads.paper import INTERACTIVE_AND_BATCH, WORKLOADS
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from services.simulator.workloads.trace import Trace
from shared.config import ClusterConfig
from shared.hardware import DEVICES, MODELS
from shared.length_trace import TraceError, read_lengths

PAPER_MODELS = ("mistral-7b", "vicuna-13b", "llama-70b")


class Amounts(click.ParamType[dict[str, float]]):
    """``NAME=NUMBER,NAME=NUMBER``, of names that are known."""

    name = "name=number,…"

    def __init__(self, kind: str, known: Sequence[str], *, whole: bool) -> None:
        self._kind = kind
        self._known = known
        self._whole = whole

    def convert(
        self, value: str | dict[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, float]:
        """By name; `click.BadParameter` for what is not there, or no number above 0."""
        if isinstance(value, dict):
            return value
        found: dict[str, float] = {}
        for part in value.split(","):
            name, _, text = part.strip().partition("=")
            if name not in self._known:
                self.fail(f"{name!r} is no {self._kind}; there are {', '.join(self._known)}", param, ctx)
            try:
                number = int(text) if self._whole else float(text)
            except ValueError:
                number = 0
            if not 0 < number < 1e6 or name in found:
                what = "a whole number" if self._whole else "a number"
                self.fail(f"{part.strip()!r}: say each {self._kind} once, as {name}={what} above 0", param, ctx)
            found[name] = number
        return found


DEVICE_COUNTS = Amounts("device", list(DEVICES), whole=True)
DEVICE_COSTS = Amounts("device", list(DEVICES), whole=False)
SLO_MIX = Amounts("SLO class", list(ClusterConfig().slo_classes), whole=False)


@dataclass(frozen=True)
class WorkloadChoice:
    """A named workload or a trace, and how its requests are drawn."""

    name: str
    trace: Trace | None
    slos: Mix | None
    rate_per_s: float | None
    models: Sequence[str]
    """Served; a trace's own names are mapped onto them, the most popular first."""

    def draw(self, num_requests: int, seed: int, first: int = 0) -> list[WorkloadRequest]:
        """So many requests; of a trace with arrivals, from its line ``first`` on."""
        random = Random(seed)  # noqa: S311 - a workload is no secret
        try:
            if self.trace is None:
                assert self.rate_per_s is not None
                return WORKLOADS[self.name].draw(self.rate_per_s, num_requests, random, slos=self.slos)
            own = self.trace.models
            return self.trace.requests(
                num_requests,
                random,
                slos=self.slos or INTERACTIVE_AND_BATCH,
                models={name: self.models[place % len(self.models)] for place, name in enumerate(own)},
                rate_per_s=self.rate_per_s,
                first=first,
            )
        except WorkloadError as error:
            raise CliError(f"{error}; say it with --rate") from error


def workload_choice(
    workload: str, rate: float | None, slo: dict[str, float] | None, models: str | None
) -> WorkloadChoice:
    """What was asked for; `CliError` where it makes no workload."""
    slos = Mix(slo) if slo else None
    if workload in WORKLOADS:
        if rate is None:
            raise CliError(f"--workload {workload}: its arrivals are drawn, so --rate is needed (requests a second)")
        if models is not None:
            raise CliError(f"--workload {workload} brings its own models; --models maps those of a trace")
        return WorkloadChoice(workload, None, slos, rate, list(WORKLOADS[workload].models.weights))
    path = Path(workload)
    if not path.exists():
        raise CliError(f"--workload {workload}: neither one of {', '.join(WORKLOADS)} nor a file")
    try:
        trace = Trace(str(path), read_lengths(path, MAX_MODEL_LEN).lines)
    except TraceError as error:
        raise CliError(str(error)) from error
    if not trace.has_arrivals and rate is None:
        raise CliError(f"{workload} has no arrival_s: --rate is needed (requests a second)")
    return WorkloadChoice(path.name, trace, slos, rate, _served(models, trace))


def _served(models: str | None, trace: Trace) -> list[str]:
    chosen = models.split(",") if models else list(PAPER_MODELS)
    for name in chosen:
        if name not in MODELS:
            raise CliError(f"--models: no model {name!r} is known; there are {', '.join(MODELS)}")
    return chosen[: len(trace.models)]

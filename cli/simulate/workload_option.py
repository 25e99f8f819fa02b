"""What the options of `treadle sim` and `treadle plan` say of devices, classes and workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from cli.errors import CliError
from services.simulator.devices.device_group import KINDS
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import INTERACTIVE_AND_BATCH, WORKLOADS
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from services.simulator.workloads.trace import Trace
from shared.config.config import ClusterConfig
from shared.config.hardware import MODELS
from shared.files.length_trace import LengthTrace, TraceError, TraceLine, read_lengths

# Of a file's requests, those that no served model takes. What is found for the others is no answer for all of them.
MAX_LEFT_OUT_SHARE = 0.01
ALLOW_LEFT_OUT = click.option(
    "--allow-left-out", is_flag=True, help="Go on where more than 1 % of a file's requests are too long for its models."
)

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


DEVICE_COUNTS = Amounts("device", list(KINDS), whole=True)
DEVICE_COSTS = Amounts("device", list(KINDS), whole=False)
SLO_MIX = Amounts("SLO class", list(ClusterConfig().slo_classes), whole=False)


@dataclass(frozen=True)
class WorkloadChoice:
    """A named workload or a trace, and how its requests are drawn."""

    name: str
    trace: Trace | None
    slos: WeightedNames | None
    rate_per_s: float | None
    models: Sequence[str]
    """Served."""
    by_own_name: Mapping[str, str]
    """Who serves each of a trace's own models."""
    max_model_lens: Mapping[str, int]
    """Of those of a trace, by name: the models' own contexts."""
    num_left_out: int = 0
    """Requests of the file that are longer than the context of the model that would serve them."""
    left_out_share: float = 0.0
    """The same, of all that are in the file."""

    def draw(self, num_requests: int, seed: int, first: int = 0) -> list[WorkloadRequest]:
        """So many requests; of a trace with arrivals, from its line ``first`` on."""
        random = Random(seed)  # noqa: S311 - a workload is no secret
        try:
            if self.trace is None:
                assert self.rate_per_s is not None
                return WORKLOADS[self.name].draw(self.rate_per_s, num_requests, random, slos=self.slos)
            return self.trace.requests(
                num_requests,
                random,
                slos=self.slos or INTERACTIVE_AND_BATCH,
                models=self.by_own_name,
                rate_per_s=self.rate_per_s,
                first=first,
            )
        except WorkloadError as error:
            raise CliError(str(error)) from error


def workload_choice(
    option: str,
    workload: str,
    rate: float | None,
    slo: dict[str, float] | None,
    models: str | None,
    *,
    allow_left_out: bool = False,
    max_model_len: int | None = None,
) -> WorkloadChoice:
    """What was asked for with ``option``; `CliError` where it makes no workload.

    ``max_model_len`` stands for the contexts of all models of a file, in the place of their own.
    """
    slos = WeightedNames(slo) if slo else None
    if workload in WORKLOADS:
        if rate is None:
            raise CliError(f"{option} {workload}: its arrivals are drawn, so --rate is needed (requests a second)")
        if models is not None:
            raise CliError(f"{option} {workload} brings its own models; --models maps those of a trace")
        return WorkloadChoice(workload, None, slos, rate, list(WORKLOADS[workload].models.weights), {}, {})
    path = Path(workload)
    if not path.exists():
        raise CliError(f"{option} {workload}: neither one of {', '.join(WORKLOADS)} nor a file")
    names = _known(models)
    lens = {name: max_model_len or MODELS[name].context_tokens for name in names}
    try:
        found = read_lengths(path, max(lens.values()))
    except TraceError as error:
        raise CliError(str(error)) from error
    by_own_name = _served_for(Trace("", found.lines).models, names)
    served = list(dict.fromkeys(by_own_name.values()))
    fitting = _fitting(found, by_own_name, lens)
    num_left_out = found.num_too_long + len(found.lines) - len(fitting)
    share = num_left_out / (num_left_out + len(fitting))
    if share > MAX_LEFT_OUT_SHARE and not allow_left_out:
        raise CliError(_too_many(f"{option} {workload}", num_left_out, share, {name: lens[name] for name in served}))
    trace = Trace(str(path), fitting)
    if not trace.has_arrivals and rate is None:
        raise CliError(f"{workload} has no arrival_s: --rate is needed (requests a second)")
    return WorkloadChoice(path.name, trace, slos, rate, served, by_own_name, lens, num_left_out, share)


def _known(models: str | None) -> list[str]:
    chosen = models.split(",") if models else list(PAPER_MODELS)
    for name in chosen:
        if name not in MODELS:
            raise CliError(f"--models: no model {name!r} is known; there are {', '.join(MODELS)}")
    return chosen


def _served_for(own: Sequence[str], served: Sequence[str]) -> dict[str, str]:
    """Who serves each of a file's own models, the most popular first."""
    return {name: served[place % len(served)] for place, name in enumerate(own)}


def _fitting(found: LengthTrace, by_own_name: Mapping[str, str], lens: Mapping[str, int]) -> tuple[TraceLine, ...]:
    """Requests that their model takes; `CliError` where there are none."""
    limits = {own: lens[served] for own, served in by_own_name.items()}
    fitting = tuple(line for line in found.lines if line.input_tokens + line.output_tokens <= limits[line.model])
    if not fitting:
        raise CliError(f"no request fits into the context of its model ({_contexts(lens)}); --models names others")
    return fitting


def _too_many(what: str, num_left_out: int, share: float, lens: Mapping[str, int]) -> str:
    return (
        f"{what}: {num_left_out} of its requests ({share:.1%}) are longer than the context of their model "
        f"({_contexts(lens)}), so what is found would hold for the others alone; serve models with longer contexts "
        f"(--models; there are {_contexts({name: model.context_tokens for name, model in MODELS.items()})}), "
        "or leave them out with --allow-left-out"
    )


def _contexts(lens: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {tokens} tokens" for name, tokens in lens.items())

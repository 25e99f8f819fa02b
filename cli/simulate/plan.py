"""`treadle plan`: how many devices a workload needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
from rich.table import Table

from cli.errors import CliError
from cli.finite_range import FiniteRange
from cli.progress_bar import progress_bar
from cli.simulate.checked_run import checked_run
from cli.simulate.workload_option import ALLOW_LEFT_OUT, DEVICE_COSTS, SLO_MIX, WorkloadChoice, workload_choice
from cli.tables import print_table
from services.simulator.cluster.cluster import fast, stepped
from services.simulator.devices.capacity import MAX_DEVICES, Attainment, CapacityError, Trial, least_devices
from services.simulator.devices.catalogue import MAX_NUM_SEQS, cluster_config, device, devices_of
from services.simulator.reports.report import attainment
from services.simulator.simulation import Scenario
from shared.config.hardware import DEVICES
from shared.config.services.queue import QueueOptions

_FILE = click.Path(path_type=Path, dir_okay=False)
_SHARE = FiniteRange(0, 1, min_open=True, max_open=True)
_KIND = click.Choice(list(DEVICES))


@dataclass(frozen=True)
class Fleet:
    """What is needed where all devices are of one kind."""

    device: str
    num_devices: int
    cost: float
    tried: Sequence[Attainment]

    @property
    def found(self) -> Attainment:
        """Of the number that is needed."""
        return next(one for one in self.tried if one.num_devices == self.num_devices)


@click.command("plan")
@click.option("--trace", required=True, help="CSV file of requests, or wa, wb, wc (QLM's evaluation).")
@click.option("--slo-attainment", "target", type=_SHARE, default=0.9, show_default=True, help="Promises to keep.")
@click.option("--device", "kinds", type=_KIND, multiple=True, required=True, help="Several: the cheapest is found.")
@click.option("--cost", "costs", type=DEVICE_COSTS, help="Of a device, such as a100=4,a10=1.  [default: 1 each]")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Arrivals a second.  [default: the file's]")
@click.option(
    "--requests", "num_requests", type=click.IntRange(min=10), default=1000, show_default=True, help="A trial."
)
@click.option("--trials", "num_trials", type=click.IntRange(2, 100), default=5, show_default=True)
@click.option("--confidence", type=_SHARE, default=0.95, show_default=True, help="Of the bound, one-sided.")
@click.option("--slo", type=SLO_MIX, help="Mix of classes, such as interactive=1,batch-1=2.")
@click.option("--models", help="Served for those of a file, the most popular first: A,B.")
@ALLOW_LEFT_OUT
@click.option("--max-num-seqs", type=click.IntRange(1, 4096), default=MAX_NUM_SEQS, show_default=True, help="Batch.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@click.option("--plot", type=_FILE, help="Also draw attainment by number of devices (PNG, SVG or PDF by its name).")
def command(
    trace: str,
    target: float,
    kinds: tuple[str, ...],
    costs: dict[str, float] | None,
    num_requests: int,
    num_trials: int,
    confidence: float,
    max_num_seqs: int,
    seed: int,
    as_json: bool,
    plot: Path | None,
    **workload: Any,
) -> None:
    """Find the least number of devices that keeps a share of the promises, by simulation.

    Each trial is another window of the trace (or another sample of the workload), with other classes drawn. A number is
    enough when the lower bound of the mean attainment over all trials reaches the share.
    """
    choice = workload_choice("--trace", trace, **workload)
    fleets = []
    for kind in dict.fromkeys(kinds):
        trial = _trial(choice, kind, num_requests, max_num_seqs, seed)
        try:
            with progress_bar(f"{kind}: trials", MAX_DEVICES.bit_length() * num_trials) as show:
                count, tried = least_devices(trial, target, num_trials, confidence, show)
        except CapacityError as error:
            raise CliError(f"{kind}: {error}") from error
        fleets.append(Fleet(kind, count, count * (costs or {}).get(kind, 1.0), tried))
    best = min(fleets, key=lambda fleet: (fleet.cost, fleet.device))
    found = {
        "trace": choice.name,
        "target": target,
        "confidence": confidence,
        "devices": {best.device: best.num_devices},
        "cost": best.cost,
        "attainment": best.found.mean,
        "attainment_low": best.found.low,
        "attainment_high": best.found.high,
        "fleets": [_fleet_to_json(fleet) for fleet in fleets],
        "num_left_out": choice.num_left_out,
        "left_out_share": choice.left_out_share,
        "num_requests": num_requests,
        "num_trials": num_trials,
        "seed": seed,
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found, fleets)
    if plot is not None:  # behind the report, which a file that cannot be written shall not cost
        _draw(fleets, target, plot)


def _trial(choice: WorkloadChoice, kind: str, num_requests: int, max_num_seqs: int, seed: int) -> Trial:
    """Simulations of the workload on devices of one kind."""
    lens = choice.max_model_lens
    missing = [one for one in choice.models if one not in device(kind, choice.models, max_model_lens=lens).models]
    if missing:
        raise CliError(f"--device {kind}: {', '.join(missing)} does not fit into its memory")

    def attained(num_devices: int, number: int) -> float:
        nodes = devices_of({kind: num_devices}, choice.models, max_model_lens=lens)
        requests = choice.draw(num_requests, seed + number, _first(choice, num_requests, seed + number))
        scenario = Scenario(
            config=cluster_config(list(nodes), choice.models, QueueOptions(), max_num_seqs, lens),
            devices=nodes,
            requests=requests,
            make_engine=stepped if any(one.hash_ids for one in requests) else fast,
        )
        return attainment(checked_run(scenario).recording.outcomes, scenario.config)

    return attained


def _first(choice: WorkloadChoice, num_requests: int, seed: int) -> int:
    """Where a trial's window of the trace begins."""
    num_more = len(choice.trace.lines) - num_requests if choice.trace is not None and choice.trace.has_arrivals else 0
    return Random(seed).randint(0, num_more) if num_more > 0 else 0  # noqa: S311 - a window is no secret


def _fleet_to_json(fleet: Fleet) -> dict[str, Any]:
    return {"device": fleet.device, "num_devices": fleet.num_devices, "cost": fleet.cost} | {
        "tried": [asdict(one) for one in fleet.tried]
    }


def _print(found: dict[str, Any], fleets: Sequence[Fleet]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("device", "number", "kept", "at least", "at most", ""):
        table.add_column(heading, justify="left" if heading == "device" else "right")
    for fleet in fleets:
        for one in fleet.tried:
            shares = [f"{share:.1%}" for share in (one.mean, one.low, one.high)]
            is_found = one.num_devices == fleet.num_devices
            table.add_row(fleet.device, str(one.num_devices), *shares, "enough" if is_found else "")
    print_table(table)
    if found["num_left_out"]:
        left_out = f"{found['num_left_out']} requests of {found['trace']} ({found['left_out_share']:.1%})"
        click.echo(f"\nleft out: {left_out}, which are too long for their models")
    needed = ", ".join(f"{count} × {kind}" for kind, count in found["devices"].items())
    click.echo(
        f"\n{needed} (cost {found['cost']:g}) keep {found['target']:.0%}, with {found['confidence']:.0%} confidence"
    )


def _draw(fleets: Sequence[Fleet], target: float, path: Path) -> None:
    from matplotlib.figure import Figure  # takes a second to import

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes: Any = figure.subplots()
    for fleet in fleets:
        counts = [one.num_devices for one in fleet.tried]
        means = [one.mean for one in fleet.tried]
        bars = [[one.mean - one.low for one in fleet.tried], [one.high - one.mean for one in fleet.tried]]
        axes.errorbar(counts, means, yerr=bars, marker="o", capsize=3, label=f"{fleet.device}: {fleet.num_devices}")
    axes.axhline(target, color="#888888", linestyle="--")
    axes.set(xlabel="devices", ylabel="promises kept", ylim=(0, 1.02))
    axes.set_xscale("log", base=2)
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be written: {error}") from error
    click.echo(f"drawn: {path}", err=True)

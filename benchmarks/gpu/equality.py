"""Does an engine on the device say what the reference says? Tiny models of each family, through the whole engine.

Weights, buffers and KV are float32 on both, so only the order of sums differs. Where another token is drawn all the
same, the reference's own logprobs decide: within `NEAR_TIE` of each other either is right, and the texts part there.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from line import Line
from models import FAMILIES, VOCAB, dummy

from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.token_logprob import TokenLogprob

NEAR_TIE = 1e-3
LOGPROB_ERROR = 1e-3
MAX_STEPS = 500
LITTLE_BLOCKS = 9
ROOMY = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, step_tokens=32, max_num_seqs=8)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run the same requests."""

    name: str
    options: EngineOptions
    graphs: bool = True
    is_interpreted: bool = False
    """Also where a step takes seconds."""


@dataclass(slots=True)
class Heard:
    """What came of one choice."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


Answers = Mapping[tuple[str, int], Heard]
"""By request and choice."""


@dataclass(frozen=True, slots=True)
class Family:
    """A tiny model, and what the reference says to its requests."""

    spec: ModelSpec
    waves: Sequence[Sequence[Payload]]
    expected: Answers
    block_bytes: int


def check_equality(device: torch.device, _: Mapping[str, float], share: int, num_shares: int) -> Iterator[Line]:
    """Each family in each way; where kernels are interpreted, one of them with few tokens."""
    is_short = device.type == "cpu"
    with tempfile.TemporaryDirectory() as folder:
        names = ["llama"] if is_short else list(FAMILIES)[share::num_shares]
        families = [_family(dummy(name, FAMILIES[name], Path(folder)), is_short=is_short) for name in names]
        for number in range(len(_ways(families[0].block_bytes))):
            for family in families:
                way = _ways(family.block_bytes)[number]
                if not is_short or way.is_interpreted:
                    yield _compare(family, way, device)


def _family(spec: ModelSpec, *, is_short: bool) -> Family:
    engine = Engine(ReferenceExecutor(ROOMY), ROOMY)
    block_bytes = engine.load_model(spec).block_bytes
    waves = waves_of(spec, is_short=is_short)
    return Family(spec, waves, answers_of(engine, waves), block_bytes)


def _ways(block_bytes: int) -> list[Way]:
    """The last two have too little memory for the requests of a wave."""
    little = replace(ROOMY, kv_cache_bytes=LITTLE_BLOCKS * block_bytes)
    return [
        Way("graphs, steps ahead", ROOMY),
        Way("launch by launch, one step at a time", replace(ROOMY, async_scheduling=False), graphs=False),
        Way("preemption by recompute", little),
        Way(
            "preemption by swap",
            replace(little, preemption="swap", host_kv_bytes=64 * block_bytes),
            is_interpreted=True,
        ),
    ]


def waves_of(spec: ModelSpec, *, is_short: bool) -> list[list[Payload]]:
    """Greedy and sampled requests, forks, beams, penalties.

    The first wave teaches the engine that outputs are short, so that it admits more than there is room for. The last
    one begins as a request before it did.
    """
    numbers = random.Random(0)
    common = [numbers.randrange(VOCAB) for _ in range(9)]

    def request(name: str, num_own_tokens: int, num_tokens: int, prefix: Sequence[int] = (), **how: Any) -> Payload:
        prompt = [*prefix, *(numbers.randrange(VOCAB) for _ in range(num_own_tokens))]
        sampling = Sampling(**{"temperature": 0.0, "num_logprobs": 5} | how, max_tokens=num_tokens, seed=7)
        return Payload(name, 0, "check", spec.name, prompt, replace(sampling, ignore_eos=True))

    short = [request("short", 1, 1)]
    forked = request("forked", 6, 4, temperature=0.9, num_choices=2, num_candidates=2)
    if is_short:
        return [
            short,
            [request("common", 3, 6, common), request("greedy", 12, 6), forked],
            [request("cached", 1, 2, common)],
        ]
    first = [
        request("greedy", 5, 12),
        request("long", 21, 8),
        request("common", 3, 9, common),
        forked,
        request("penalties", 4, 12, temperature=0.7, top_k=20, presence_penalty=1.0, repetition_penalty=1.2),
    ]
    return [short, first, [request("cached", 2, 5, common), request("beams", 4, 5, num_candidates=3, is_beam=True)]]


def answers_of(engine: Engine, waves: Sequence[Sequence[Payload]]) -> Answers:
    """What comes of the requests, one wave after another; the engine's books are checked behind each step."""
    answers: dict[tuple[str, int], Heard] = {}

    def hear(chunks: Sequence[OutputChunk]) -> None:
        for chunk in chunks:
            if chunk.error:
                raise RuntimeError(f"request {chunk.request_id}: {chunk.error}")
            heard = answers.setdefault((chunk.request_id, chunk.choice), Heard())
            heard.token_ids += chunk.token_ids
            heard.logprobs += chunk.logprobs

    for wave in waves:
        for payload in wave:
            hear(engine.add(payload))
        for step in range(MAX_STEPS):
            if not engine.has_work:
                break
            hear(engine.step(float(step)))
            engine.check()
        else:
            raise RuntimeError(f"not done after {MAX_STEPS} steps")
    return answers


def _compare(family: Family, way: Way, device: torch.device) -> Line:
    expected = family.expected
    engine = Engine(CudaExecutor(way.options, device, dtype=torch.float32, graphs=way.graphs), way.options)
    engine.load_model(family.spec)
    answers = answers_of(engine, family.waves)
    counts = engine.counts
    if way.options.kv_cache_bytes != ROOMY.kv_cache_bytes:
        assert counts.num_preemptions, "memory was not too little"
    else:
        assert counts.prefix_cached_tokens, "nothing was found in the cache"
    assert answers.keys() == expected.keys(), "choices are missing"
    partings = {name: parting_of(heard, expected[name]) for name, heard in answers.items()}
    wrong = [f"{name[0]}.{name[1]}" for name, parting in partings.items() if parting == "wrong"]
    error = max(_logprob_error(heard, expected[name]) for name, heard in answers.items())
    if error > LOGPROB_ERROR:
        wrong.append("logprobs")
    num_near = sum(parting == "near" for parting in partings.values())
    note = (
        f"of {len(answers)}; {num_near} near-ties, logprobs within {error:.0e}, {counts.num_preemptions} preemptions, "
        f"{counts.prefix_cached_tokens} tokens cached{': wrong: ' + ', '.join(wrong) if wrong else ''}"
    )
    return Line(f"{family.spec.name}: {way.name}", len(wrong), "wrong", note, at_most=0.0, is_required=True)


def parting_of(ours: Heard, theirs: Heard) -> str:
    """Whether, and how, one text leaves the other."""
    pairs = zip(ours.token_ids, theirs.token_ids, strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    if place is None:
        return "never" if len(ours.token_ids) == len(theirs.token_ids) else "wrong"
    if place >= len(theirs.logprobs):
        return "wrong"
    at = theirs.logprobs[place]
    their_logprob = dict(at.top).get(ours.token_ids[place])
    is_near = their_logprob is not None and abs(at.logprob - their_logprob) < NEAR_TIE
    return "near" if is_near else "wrong"


def _logprob_error(ours: Heard, theirs: Heard) -> float:
    """The largest, of tokens up to where the texts part."""
    error = 0.0
    tokens = zip(ours.token_ids, theirs.token_ids, strict=False)
    for (one, other), mine, right in zip(tokens, ours.logprobs, theirs.logprobs, strict=False):
        if one != other:
            break
        error = max(error, abs(mine.logprob - right.logprob))
    return error

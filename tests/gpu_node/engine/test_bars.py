"""Whatever a node's settings and its load, each request gets the tokens that it gets alone in a plain engine.

Two nodes, each with settings of its own and too little memory for its load. Requests of every kind come, leave, give
way to others and come back, and go on at the other node in the midst of their output, with their KV or without. What
leaves the first node has been copied out behind its steps, as far as there was room for that.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import LOST
from gpu_node.engine.tiers.open_store import open_store
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.named import lane_passes, offload_passes
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.program import Program
from shared.config.engines.engine import EngineOptions, ModelSpec, WeightType
from shared.config.engines.speculation import SpeculationOptions
from shared.config.engines.tiers import NO_TIERS, TierOptions
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node import tiny
from tests.gpu_node.batch_cuts import RandomCuts
from tests.gpu_node.client import Client
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.pieces import DATE, PEOPLE, PERSON, THOUGHT, compiled
from tests.gpu_node.random_pipelines import random_pipeline
from tests.gpu_node.steady_devices import SteadyCpu, SteadyReference

MAX_MODEL_LEN = 48
NUM_REQUESTS = 36
LAST_ARRIVAL, LAST_EVENT = 2, 30
MAX_STEPS = 2000
NUM_SEEDS = 8
BLOCK_SIZES = [1, 2, 4, 5, 8, 16]
PREEMPTIONS = ["recompute", "swap", "adaptive", "swap", "recompute", "adaptive", "adaptive", "swap"]
LOGPROB_ERROR = 1e-4
"""Of float32 sums whose order depends on the batch. The CPU device's order does not: there it is 0."""


def split(program: Program) -> Program:
    return split_operators(program, even_plan(program, 3))


@dataclass(frozen=True)
class Way:
    """How a program is changed, and how many rows a step has that goes through a pipeline; 0: none does."""

    passes: tuple[Pass, ...] = ()
    piped_rows: int = 0
    seed: int = 0

    def pipelines(self, device: str) -> Pipelines:
        """Any pipeline; steps may be larger than it was made for."""
        if not self.piped_rows:
            return NO_PIPELINES
        return Pipelines(
            "any.json", self.piped_rows, (random_pipeline(self.seed, rows=self.piped_rows, device=device),)
        )


PLAINEST = Way()
WAYS = [
    Way(),
    Way((fuse, RandomCuts(1)), piped_rows=2, seed=1),
    Way((fuse, split, RandomCuts(2))),
    Way((fuse, RandomCuts(3), split, insert_polls), piped_rows=4, seed=3),
    Way((fuse, split, insert_polls), piped_rows=6, seed=2),
]
OFFLOADS: dict[int, Literal["on", "ahead"]] = {1: "on", 3: "ahead"}
"""By seed; the others have everything at home."""
SPECULATIONS = [SpeculationOptions("ngram", 4), None, SpeculationOptions("ngram", 1)]
REPEATS: dict[str, Any] = {"logit_bias": [(7, 40.0), (11, 40.0)]}
GUESSING_SEEDS = (3, 6)
"""Of nodes whose steps surely have room for guesses."""
KINDS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "ignore_eos": True, "num_logprobs": 2},
    {"temperature": 0.9, "top_k": 20, "ignore_eos": True},
    {"temperature": 1.3, "top_p": 0.9, "min_p": 0.01, "num_logprobs": 0, "ignore_eos": True},
    {"num_choices": 3, "num_logprobs": 1, "ignore_eos": True},
    {"num_choices": 2, "frequency_penalty": 0.7, "ignore_eos": True},
    {"num_choices": 1, "num_candidates": 3, "num_logprobs": 0},
    {"is_beam": True, "num_candidates": 3, "num_choices": 2, "num_logprobs": 1},
    {"temperature": 0.7, "presence_penalty": 1.0, "repetition_penalty": 1.2, "ignore_eos": True},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logit_bias": [(7, 2.0), (9, -50.0)], "ignore_eos": True},
    {"temperature": 2.0, "stop_token_ids": list(range(3, 9))},
    # those repeat themselves, so that guesses hold
    {"temperature": 0.0, "num_logprobs": 1, "ignore_eos": True} | REPEATS,
    {"temperature": 0.8, "num_choices": 2, "repetition_penalty": 0.1, "ignore_eos": True},
    {"temperature": 1.0, "num_candidates": 2, "stop_token_ids": [11]} | REPEATS,
    # and those are held to languages, which leave little to guess among
    {"temperature": 0.9, "num_choices": 2, "num_logprobs": 1, "constraint": PEOPLE},
    {"temperature": 0.0, "num_logprobs": 0, "frequency_penalty": 0.4, "constraint": PERSON},
    {"temperature": 1.2, "num_candidates": 2, "constraint": DATE},
    {"temperature": 0.8, "constraint": THOUGHT},
]


def requests() -> list[Payload]:
    """Two of each kind; every other prompt begins as all of these do."""
    numbers = random.Random(1)
    common = [numbers.randrange(3, tiny.VOCAB) for _ in range(13)]
    payloads = []
    for number in range(NUM_REQUESTS):
        own = [numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, 9))]
        sampling = Sampling(max_tokens=numbers.randint(10, 26), seed=number, **KINDS[number % len(KINDS)])
        payloads.append(Payload(str(number), 0, "g", "tiny", (common if number % 2 else []) + own, sampling))
    return payloads


@dataclass(frozen=True)
class Device:
    """What a node computes on."""

    name: str
    path: Path
    weights: WeightType
    grammars: GrammarCompiler

    def executor(self, options: EngineOptions, way: Way, num_threads: int) -> Executor:
        pipelines = way.pipelines("reference" if self.name == "reference" else cpu_name(num_threads))
        if self.name == "reference":
            choose = random.Random(num_threads).randrange
            return SteadyReference(options, passes=way.passes, pipelines=pipelines, choose=choose)
        return SteadyCpu(
            options,
            num_threads,
            optimize=bool(way.passes),
            passes=(*way.passes[1:], *offload_passes(options.offload)),
            lane_passes=(*way.passes[1:], *lane_passes(options.offload)),
            pipelines=pipelines,
            link_folder=self.path,
        )

    def engine(
        self,
        resources: ExitStack,
        way: Way = PLAINEST,
        num_threads: int = 1,
        speculation: SpeculationOptions | None = None,
        **given: Any,
    ) -> Engine:
        """By default the plainest there is: one thread, no passes, no pipeline, no step planned ahead, no guesses."""
        plain: dict[str, Any] = {"kv_cache_bytes": 1 << 20, "async_scheduling": False, "structured_guesses": False}
        options = EngineOptions(**plain | given)
        executor = self.executor(options, way, num_threads)
        if isinstance(executor, CpuExecutor):
            resources.enter_context(closing(executor))
        store = open_store(options.tiers, "node", executor)
        if store is not None:
            resources.enter_context(closing(store))
        engine = Engine(executor, options, store=store, grammars=self.grammars)
        engine.load_model(
            ModelSpec(
                name="tiny",
                source=str(self.path),
                max_model_len=MAX_MODEL_LEN,
                weights=self.weights,
                speculation=speculation,
            )
        )
        return engine


@pytest.fixture(scope="module", params=["reference-bfloat16", "cpu-bfloat16", "cpu-int8"])
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """With a model whose keys and values are so large that 170 tokens fill the least memory that can be given."""
    name, weights = request.param.split("-")
    path = tmp_path_factory.mktemp(request.param)
    save("llama", path, num_hidden_layers=3 if name == "reference" else 6, num_key_value_heads=4, head_dim=64)
    with closing(compiled(tmp_path_factory.mktemp("pieces"))) as grammars:
        yield Device(name, path, weights, grammars)


@pytest.fixture(scope="module")
def alone(device: Device) -> dict[str, Client]:
    """What each request brings by itself, with nothing reused: what prompts have in common does not fill a block."""
    clients = {payload.request_id: Client(0, payload) for payload in requests()}
    with ExitStack() as resources:
        engine = device.engine(resources)
        for client in clients.values():
            run([engine], [client])
    return clients


def run(engines: list[Engine], clients: list[Client]) -> None:
    """Until nobody waits for anything. All begin at the first engine; who is resumed goes to the last."""
    by_id = {client.request_id: client for client in clients}
    for step in range(MAX_STEPS):
        for client in clients:
            happen(client, step, engines)
        engines[0].growing.open(by_id)
        give_way([client for client in clients if client.evicted_at == step], engines, by_id)
        for engine in engines:
            for chunk in engine.step(now=float(step)):
                by_id[chunk.request_id].take(chunk)
            engine.growing.grow(lambda _, num_bytes: memoryview(bytearray(num_bytes)))
            engine.check()
        if step > LAST_EVENT and not any(engine.has_work for engine in engines):
            return
    raise AssertionError("requests are left")


def happen(client: Client, step: int, engines: list[Engine]) -> None:
    """What a client or its gateway does before a step."""
    if client.arrives_at == step:
        assert engines[0].add(client.payload) == []
    if client.cancelled_at == step and not client.is_over:
        engines[0].abort([client.request_id])
        engines[-1].abort([client.request_id])
        client.is_over = True
    if client.resumed_at == step and not client.is_over:
        engines[0].abort([client.request_id])
        client.is_kept = False
        for chunk in engines[-1].add(client.next_attempt()):
            client.take(chunk)
    if client.back_at == step and client.is_kept and not client.is_over:
        images = engines[0].hand_over([client.request_id]) if client.moves else []
        data = images[0].data if images else None
        engine = engines[-1 if images else 0]
        ends = engine.add(client.payload, data)
        assert [chunk.finish_reason for chunk in ends] in ([], [LOST])
        for chunk in engine.add(client.next_attempt()) if ends else []:
            client.take(chunk)


def give_way(clients: list[Client], engines: list[Engine], by_id: dict[str, Client]) -> None:
    """Some are evicted together; who has no KV to keep, or finds no room for it, goes on as another attempt."""
    chunks, kept = engines[0].evict(client.request_id for client in clients)
    engines[0].check()
    for chunk in chunks:
        by_id[chunk.request_id].take(chunk)
    for one in kept:
        client = by_id[one.request_id]
        client.is_kept = one.kv_tokens > 0
        if not client.is_kept:
            for chunk in engines[0].add(client.next_attempt()):
                client.take(chunk)


def load(numbers: random.Random) -> list[Client]:
    """All requests in any order, some of them cancelled or resumed."""
    events = range(LAST_ARRIVAL + 1, LAST_EVENT)
    clients = [
        Client(
            arrives_at=numbers.randint(0, LAST_ARRIVAL),
            payload=payload,
            cancelled_at=numbers.choice(events) if numbers.random() < 0.15 else None,
            resumed_at=numbers.choice(events) if numbers.random() < 0.2 else None,
        )
        for payload in requests()
    ]
    for client in clients:
        if numbers.random() < 0.45:
            client.evicted_at = numbers.choice(events[2:22])
            client.back_at = numbers.randint(client.evicted_at + 1, LAST_EVENT)
            client.moves = numbers.random() < 0.5
    numbers.shuffle(clients)
    return clients


def node(device: Device, resources: ExitStack, numbers: random.Random, seed: int, block_size: int) -> Engine:
    """Of any settings; all ways of passes and pipelines, of preemption and of steps ahead are among the first.

    It has seen outputs of one token only of late, so it admits more than there is room for. Where tokens are guessed,
    it has found that this costs nothing, as it does by the clock of its device.
    """
    offloads = device.name == "cpu" and seed % 4 in OFFLOADS
    speculation = SPECULATIONS[seed % len(SPECULATIONS)]
    engine = device.engine(
        resources,
        WAYS[seed % len(WAYS)],
        offload=OFFLOADS[seed % 4] if offloads else "off",
        num_threads=numbers.randint(1, 2),
        speculation=speculation,
        structured_guesses=seed % 4 != 0,
        block_size=block_size,
        step_tokens=numbers.choice([24, 64, 256]),
        max_num_seqs=numbers.choice([24, 48]),
        async_scheduling=bool((seed + seed // 2 + seed // 4) % 2),
        preemption=["recompute", "swap", "adaptive", "swap", "recompute", "adaptive", "adaptive", "swap"][seed % 8],
        order=["fcfs", "fair", "slack"][seed % 3],
        admission=["peak", "greedy", "priced"][seed // 2 % 3],
        chunked_prefill=seed % 4 != 2,
        overlap_swaps=seed % 4 != 1,
        lazy_swaps=seed % 3 != 2,
        host_kv_bytes=numbers.choice([1 << 18, 1 << 20]),
        tiers=tiers(resources, seed),
    )
    for size in (20, 12, 6, 3, 1) if speculation else ():
        tiny.run(engine, [tiny.request(f"{size}-{number}", [number + 3], 20, **REPEATS) for number in range(size)])
    for again in range(4 if speculation else 1):
        tiny.run(engine, [tiny.request(f"short-{again}-{number}", [number], 1) for number in range(64)])
    if offloads:
        lend_to(engine, device.engine(resources, kv_cache_bytes=16 << 20, offload="on"), seed)
    return engine


def lend_to(engine: Engine, receiver: Engine, seed: int) -> None:
    """Part of the engine's requests lie on a receiver, as far as that has room for them."""
    link = LinkName(f"{id(engine)}", f"{id(receiver)}")
    receiver.offload.receive(link, engine.make_link(link, "tiny"))
    engine.offload.grant(link, receiver.offload.lend(link, 3), receiver.offload.page_bytes)
    engine.offload.set_ratio(link, 1.0 if seed % 3 else 0.4)


def tiers(resources: ExitStack, seed: int) -> TierOptions:
    """None, host memory, an SSD below it; with either way of preemption among the first `NUM_SEEDS`."""
    match seed % 3:
        case 0:
            return NO_TIERS
        case 1:
            return TierOptions(host_bytes=1 << 20)
        case _:
            folder = resources.enter_context(tempfile.TemporaryDirectory())
            return TierOptions(host_bytes=1 << 18, ssd_bytes=8 << 20, ssd_folder=folder)


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_each_request_gets_what_it_gets_alone(device: Device, alone: dict[str, Client], seed: int) -> None:
    numbers = random.Random(seed)
    clients = load(numbers)
    with ExitStack() as resources:
        sizes = numbers.sample(BLOCK_SIZES, 2)
        if seed % 4:  # else what is handed over cannot be used, and is computed again
            sizes[1] = sizes[0]
        engines = [node(device, resources, numbers, seed + number, sizes[number]) for number in range(2)]
        held_before = [engine.counts.num_accepted_tokens for engine in engines]
        assert not any(engine.counts.num_structured_drafts for engine in engines)
        run(engines, clients)
        is_piped = [WAYS[(seed + number) % len(WAYS)].piped_rows > 0 for number in range(2)]
        assert [engine.counts.num_piped > 0 for engine in engines] == is_piped
        held = [engine.counts.num_accepted_tokens - before for engine, before in zip(engines, held_before, strict=True)]
        assert sum(held) > 0 or seed not in GUESSING_SEEDS, "guesses are among what is compared"
        assert any(engine.counts.num_structured_accepted for engine in engines) or seed not in GUESSING_SEEDS
        assert sum(engine.num_preemptions for engine in engines) > 0
        assert engines[0].stats().kv_bytes_per_s > 0, "blocks went to host memory and back"
    for client in clients:
        expected = alone[client.request_id]
        assert client.is_over
        assert client.cancelled_at is not None or client.outputs.keys() == expected.outputs.keys()
        for choice in client.outputs:
            check(client, choice, expected, 0.0 if device.name == "cpu" else LOGPROB_ERROR)


def check(client: Client, choice: int, expected: Client, logprob_error: float) -> None:
    """What came of a choice is what comes of it alone; of a cancelled request, its beginning."""
    output, whole = client.outputs[choice], expected.outputs[choice]
    if client.cancelled_at is None:
        assert output == whole
    assert output.token_ids == whole.token_ids[: len(output.token_ids)]
    found, right = client.logprobs[choice], expected.logprobs[choice]
    assert len(found) == (len(output.token_ids) if client.payload.sampling.num_logprobs is not None else 0)
    for ours, theirs in zip(found, right, strict=False):
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        pairs = [(ours.logprob, theirs.logprob), *zip(logprobs_of(ours), logprobs_of(theirs), strict=True)]
        assert all(abs(one - other) <= logprob_error for one, other in pairs)


def logprobs_of(token: TokenLogprob) -> list[float]:
    return [logprob for _, logprob in token.top]

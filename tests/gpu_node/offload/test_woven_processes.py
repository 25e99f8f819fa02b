"""Two engine processes: whatever becomes of the receiver, each request gets the tokens that it gets without it."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
import pytest

from gpu_node.bench.offload.engine_end import EngineEnd, engine_end
from gpu_node.bench.offload.woven_pair import WovenPair
from gpu_node.engine.border.links import LinkName, LinkRefusedError
from gpu_node.engine.process.protocol.link_protocol import CloseLink
from gpu_node.engine.process.protocol.protocol import (
    EngineEvent,
    EngineReady,
    LoadModel,
    ModelLoaded,
    RunAttempt,
    StepReport,
)
from shared.config.pipelines.pipeline_file import encode_pipeline
from shared.config.pipelines.pipelines import cpu_name
from shared.messages.requests.payload import Payload
from tests.gpu_node.offload.test_woven_engines import MAX_MODEL_LEN, large_model, requests
from tests.gpu_node.offload.weaving import CPU, CUDA, PIPED, Device, on_cuda
from tests.gpu_node.random_pipelines import random_pipeline

pytestmark = pytest.mark.slow

CONFIG = """
models: [{{name: tiny, source: {path}, max_model_len: {length}}}]
nodes: [{{name: {name}, {node}}}]
engine:
  {{kv_cache_bytes: {kv_bytes}, block_size: 4, step_tokens: {rows}, max_num_seqs: {most}, offload: "on",
    pipeline: {pipeline}}}
"""
IN_LANES = PIPED[0]
NODES = dict.fromkeys((CPU, IN_LANES), "executor: cpu, num_threads: 1") | {CUDA: "executor: cuda, device: 'cuda:0'"}
MODULES = dict.fromkeys(NODES, "gpu_node.engine") | {CUDA: "tests.gpu_node.offload.interpreted_engine"}
STEP_TOKENS = dict.fromkeys(NODES, 32) | {IN_LANES: 6}
"""In lanes are steps of so many rows; there no more requests run, so steps of decodes alone are among them."""
ROUNDS = dict.fromkeys(NODES, 3) | {CUDA: 1}
"""Of all requests; the interpreter takes ten seconds for one."""
KV_BYTES = {"hot": 1 << 20, "cold": 16 << 20}


@dataclass(slots=True, eq=False)
class Hot:
    """A sender for all tests of a device, with one receiver at a time: whoever is killed has a successor."""

    device: Device
    end: EngineEnd
    folder: Path
    """Of its model and of both configurations."""
    alone: list[list[int]]
    """What it answers without a receiver."""
    stack: ExitStack
    _cold: EngineEnd | None = None

    def receiver(self) -> EngineEnd:
        if self._cold is None or self._cold.process.poll() is not None:
            self._cold = start(self.stack, self.folder, "cold", self.device)
            self._cold.ask(ModelLoaded, LoadModel("tiny"))
        return self._cold


def start(stack: ExitStack, folder: Path, name: str, device: Device) -> EngineEnd:
    end = stack.enter_context(engine_end(name, folder / f"{name}.yaml", module=MODULES[device]))
    end.ask(EngineReady)
    return end


def sender(stack: ExitStack, folder: Path, device: Device) -> Hot:
    path, pipeline = large_model(folder, device), "off"
    if device.pipeline is not None:
        file = random_pipeline(device.pipeline, rows=STEP_TOKENS[device], device=cpu_name(device.num_threads))
        pipeline = str(folder / "pipeline.json")
        Path(pipeline).write_text(encode_pipeline(file))
    for name, kv_bytes in KV_BYTES.items():
        text = CONFIG.format(
            path=path,
            length=MAX_MODEL_LEN,
            name=name,
            node=NODES[device],
            kv_bytes=kv_bytes,
            most=min(device.num_requests, STEP_TOKENS[device]),
            rows=STEP_TOKENS[device],
            pipeline=pipeline,
        )
        (folder / f"{name}.yaml").write_text(text)
    end = start(stack, folder, "hot", device)
    end.ask(ModelLoaded, LoadModel("tiny"))
    alone = answers(end, lambda event: event, requests(device), lambda number: None)
    return Hot(device, end, folder, alone, stack)


@pytest.fixture(scope="module")
def sender_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Device], Hot]]:
    """Started once each, whatever the order of tests: a start takes longer than most tests, by the interpreter most."""
    with ExitStack() as stack:
        yield cache(lambda device: sender(stack, tmp_path_factory.mktemp("woven"), device))


@pytest.fixture(params=[CPU, IN_LANES, on_cuda()], ids=str)
def hot(request: pytest.FixtureRequest, sender_of: Callable[[Device], Hot]) -> Hot:
    return sender_of(request.param)


@pytest.fixture
def pair(hot: Hot, request: pytest.FixtureRequest) -> Iterator[WovenPair]:
    """With a link of its own; its receiver may have served others."""
    epoch = re.sub(r"[^a-z0-9]+", "-", f"{os.getpid()}-{request.node.name}".lower()).strip("-")
    pair = WovenPair(hot.end, hot.receiver(), "tiny", LinkName("hot", epoch))
    pair.connect()
    yield pair
    pair.close_sender()
    if pair.cold.process.poll() is None:
        pair.cold.process.send_signal(signal.SIGCONT)  # where a test has failed that had stopped it
        pair.cold.hear = bool
        pair.cold.send(CloseLink(pair.link))


def answers(
    hot: EngineEnd, hear: Callable[[EngineEvent], object], payloads: Sequence[Payload], happen: Callable[[int], object]
) -> list[list[int]]:
    """New tokens of each request; ``happen`` is called with the number of tokens so far."""
    outputs: dict[str, list[int]] = {payload.request_id: [] for payload in payloads}
    left = set(outputs)

    def take(event: EngineEvent) -> None:
        report = hear(event)
        for chunk in getattr(report, "chunks", ()):
            assert not chunk.error
            outputs[chunk.request_id] += chunk.token_ids
            if chunk.is_last:
                left.remove(chunk.request_id)

    hot.hear = take
    hot.send(*map(RunAttempt, payloads))
    while left:
        hot.listen(0.05)
        happen(sum(map(len, outputs.values())))
    return list(outputs.values())


@pytest.fixture
def alone(hot: Hot) -> list[list[int]]:
    return hot.alone


def num_served(pair: WovenPair) -> int:
    """By the receiver, over all of its links."""
    return pair.times("tiny").cold.num_served


def test_tokens_are_those_of_home_while_pages_come_and_go(hot: Hot, pair: WovenPair, alone: list[list[int]]) -> None:
    served_before = num_served(pair)
    pair.lend(3)
    pair.set_ratio(0.7)
    numbers = random.Random(1)
    next_at = 0

    def happen(number: int) -> None:
        nonlocal next_at
        if number < next_at:
            return
        next_at = number + 25
        if len(pair.granted) > 1:
            pair.want_back(numbers.randint(1, len(pair.granted)))
        else:
            pair.lend(3)

    for _ in range(ROUNDS[hot.device]):
        next_at = 10
        assert answers(pair.hot, pair.hear, requests(hot.device), happen) == alone
    assert pair.num_lost == 0
    assert num_served(pair) > served_before
    for end in (pair.hot, pair.cold) if hot.device is not CUDA else ():
        libraries = {Path(mapped.path).name for mapped in psutil.Process(end.process.pid).memory_maps()}
        assert not any(name.startswith("libtorch") for name in libraries), "as in test_without_torch.py"


def test_a_receiver_with_requests_of_its_own_answers_between_its_operators(
    hot: Hot, pair: WovenPair, alone: list[list[int]]
) -> None:
    served_before = num_served(pair)
    pair.lend(3)
    pair.set_ratio(0.5)
    asked = requests(hot.device)
    own: dict[str, list[int]] = {payload.request_id: [] for payload in asked}

    def hear(event: EngineEvent) -> None:
        for chunk in event.chunks if isinstance(event, StepReport) else ():
            own[chunk.request_id] += chunk.token_ids

    pair.cold.hear = hear
    pair.cold.send(*map(RunAttempt, asked))
    assert answers(pair.hot, pair.hear, asked, lambda number: pair.cold.listen()) == alone
    while list(map(len, own.values())) != list(map(len, alone)):
        assert pair.cold.listen(30.0), "it goes on"
    assert list(own.values()) == alone
    assert pair.num_lost == 0
    assert num_served(pair) > served_before


ENDS = (signal.SIGKILL, signal.SIGSTOP)
NUM_ENDS = int(os.environ.get("TREADLE_WOVEN_ENDS", "8"))
"""At moments drawn at random, of receivers on processors; a run takes some seconds."""
ENDED = [
    *(pytest.param(CPU, ENDS[number % len(ENDS)], number // len(ENDS)) for number in range(NUM_ENDS)),
    *(pytest.param(IN_LANES, how, 1) for how in ENDS),
    *(on_cuda(how, 0) for how in ENDS),  # the interpreter takes its time
]


@pytest.mark.parametrize(("hot", "how", "seed"), ENDED, indirect=["hot"], ids=str)
def test_a_receiver_that_dies_or_stops_costs_time_only(
    hot: Hot, pair: WovenPair, alone: list[list[int]], how: signal.Signals, seed: int
) -> None:
    pair.lend(3)
    pair.set_ratio(1.0)
    stops_at = random.Random(seed).randint(5, sum(map(len, alone)) // 2)
    has_stopped = False

    def happen(number: int) -> None:
        nonlocal has_stopped
        if number >= stops_at and not has_stopped:
            pair.cold.process.send_signal(how)
            has_stopped = True

    assert answers(pair.hot, pair.hear, requests(hot.device), happen) == alone
    assert pair.num_lost > 0
    if how is signal.SIGSTOP:
        pair.cold.process.send_signal(signal.SIGCONT)
        num_lost = pair.num_lost
        for _ in range(ROUNDS[hot.device]):  # it accepts the new generation, and is used again
            assert answers(pair.hot, pair.hear, requests(hot.device), lambda number: None) == alone
        assert pair.num_lost == num_lost


def test_a_link_that_cannot_be_is_refused_in_one_line_and_service_goes_on(
    hot: Hot, pair: WovenPair, alone: list[list[int]]
) -> None:
    again = WovenPair(pair.hot, pair.cold, "tiny", LinkName("hot", "other"))
    with pytest.raises(LinkRefusedError, match="model 'tiny' has one already"):
        again.connect()
    with pytest.raises(LinkRefusedError, match="does not serve it"):
        again.lend(1)
    assert answers(pair.hot, pair.hear, requests(hot.device), lambda number: None) == alone

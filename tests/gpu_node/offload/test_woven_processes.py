"""Two engine processes: whatever becomes of the receiver, each request gets the tokens that it gets without it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_node.bench.offload.engine_end import EngineEnd, engine_end
from gpu_node.bench.offload.woven_pair import WovenPair
from gpu_node.engine.border.links import LinkName, LinkRefusedError
from gpu_node.engine.process.protocol import EngineEvent, EngineReady, LoadModel, ModelLoaded, RunAttempt
from shared.messages.payload import Payload
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.offload.test_woven_engines import MAX_MODEL_LEN, requests

pytestmark = pytest.mark.slow

CONFIG = """
models: [{{name: tiny, source: {path}, max_model_len: {length}}}]
nodes: [{{name: {name}, executor: cpu, num_threads: 1}}]
engine: {{kv_cache_bytes: {kv_bytes}, block_size: 4, step_tokens: 32, offload: "on"}}
"""
KV_BYTES = {"hot": 1 << 20, "cold": 16 << 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("woven")
    save("llama", folder / "model", num_hidden_layers=6, num_key_value_heads=4, head_dim=64)
    for name, kv_bytes in KV_BYTES.items():
        text = CONFIG.format(path=folder / "model", length=MAX_MODEL_LEN, name=name, kv_bytes=kv_bytes)
        (folder / f"{name}.yaml").write_text(text)
    return folder


def start(stack: ExitStack, folder: Path, name: str) -> EngineEnd:
    end = stack.enter_context(engine_end(name, folder / f"{name}.yaml"))
    end.ask(EngineReady)
    return end


@pytest.fixture(scope="module")
def hot(folder: Path) -> Iterator[EngineEnd]:
    """One sender for all tests."""
    with ExitStack() as stack:
        end = start(stack, folder, "hot")
        end.ask(ModelLoaded, LoadModel("tiny"))
        yield end


@pytest.fixture
def pair(stack: ExitStack, folder: Path, hot: EngineEnd, request: pytest.FixtureRequest) -> WovenPair:
    """With a receiver of its own."""
    epoch = f"{os.getpid()}-{request.node.name.replace('[', '-').strip(']')}"
    pair = WovenPair(hot, start(stack, folder, "cold"), "tiny", LinkName("hot", epoch))
    stack.callback(pair.close_sender)
    pair.connect()
    return pair


def answers(
    hot: EngineEnd, hear: Callable[[EngineEvent], object], payloads: Sequence[Payload], happen: Callable[[int], None]
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


@pytest.fixture(scope="module")
def alone(hot: EngineEnd) -> list[list[int]]:
    return answers(hot, lambda event: event, requests(), lambda number: None)


def test_tokens_are_those_of_home_while_pages_come_and_go(pair: WovenPair, alone: list[list[int]]) -> None:
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

    for _ in range(3):
        next_at = 0
        assert answers(pair.hot, pair.hear, requests(), happen) == alone
    assert pair.num_lost == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_receiver_that_dies_or_stops_costs_time_only(
    pair: WovenPair, alone: list[list[int]], how: signal.Signals, seed: int
) -> None:
    pair.lend(3)
    pair.set_ratio(1.0)
    stops_at = random.Random(seed).randint(5, 120)
    has_stopped = False

    def happen(number: int) -> None:
        nonlocal has_stopped
        if number >= stops_at and not has_stopped:
            pair.cold.process.send_signal(how)
            has_stopped = True

    assert answers(pair.hot, pair.hear, requests(), happen) == alone
    assert pair.num_lost > 0
    if how is signal.SIGSTOP:
        pair.cold.process.send_signal(signal.SIGCONT)
        num_lost = pair.num_lost
        for _ in range(2):  # it accepts the new generation, and is used again
            assert answers(pair.hot, pair.hear, requests(), lambda number: None) == alone
        assert pair.num_lost == num_lost


def test_a_link_that_cannot_be_is_refused_in_one_line_and_service_goes_on(
    pair: WovenPair, alone: list[list[int]]
) -> None:
    again = WovenPair(pair.hot, pair.cold, "tiny", LinkName("hot", "other"))
    with pytest.raises(LinkRefusedError, match="model 'tiny' has one already"):
        again.connect()
    with pytest.raises(LinkRefusedError, match="does not serve it"):
        again.lend(1)
    assert answers(pair.hot, pair.hear, requests(), lambda number: None) == alone

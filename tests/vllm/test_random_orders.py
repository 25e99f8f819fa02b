"""Two hundred orders drawn at random: every request ends once or was taken away, and nothing is left behind.

Of those that are evicted, some come back with their KV, some are handed over and come back with an image.
"""

from __future__ import annotations

import random

from gpu_node.engine.process.protocol.protocol import (
    NO_IMAGE,
    AbortRequests,
    Command,
    HandOverImages,
    Image,
    ImageFile,
    ImageOpened,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from shared.messages.requests.payload import Payload
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.nodes import members, request

NUM_ORDERS = 200
NUM_PROCESSES = 6  # head, resource tracker, and a core and a worker for each of two models


class Orders:
    """What is sent, and what may be heard of it."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.agent = agent
        self.chance = random.Random(seed)
        self.running: dict[str, list[int]] = {}
        """By request, its tokens."""
        self.ended: dict[str, int] = {}
        self.asked: dict[str, Payload] = {}
        self.out: dict[str, list[int]] = {}
        """Evicted ones, with what they had said; their KV is kept here."""
        self.handed: dict[str, list[int]] = {}
        """Those that were asked to be handed over."""
        self.leaving: list[list[str]] = []
        """Asked to leave, order by order; nothing else is asked of them until that is answered."""
        self.num_back = 0
        self.num_sent = 0

    def draw(self) -> Command:
        names = [name for name in self.running if not any(name in order for order in self.leaving)]
        kind = self.chance.random()
        if self.out and kind < 0.15:
            name = self.chance.choice(list(self.out))
            if kind < 0.05:
                self.handed[name] = self.out.pop(name)
                return HandOverImages([name])
            return self.back(name, self.out.pop(name))
        if kind < 0.6 or not names:
            name = f"r{self.num_sent}"
            self.num_sent += 1
            self.running[name] = []
            prompt = [self.chance.randrange(40_000) for _ in range(self.chance.randint(1, 60))]
            self.asked[name] = request(name, prompt, self.chance.randint(1, 30))
            return RunAttempt(self.asked[name])
        chosen = self.chance.sample(names, min(len(names), 2))
        if kind < 0.75:
            for name in chosen:
                del self.running[name]
            return AbortRequests([*chosen, "unknown"])
        if kind < 0.9:
            self.leaving.append(chosen)
            return TakeOut([*chosen, "unknown"])
        return LoadModel(self.chance.choice(["smol", "smol-b"]))

    def back(self, name: str, had: list[int], image: ImageFile = NO_IMAGE) -> Command:
        self.running[name] = had
        self.num_back += 1
        return RunAttempt(self.asked[name], image)

    def hear(self) -> None:
        match self.agent.next():
            case StepReport(chunks, _):
                for chunk in chunks:
                    if chunk.request_id not in self.running:
                        continue  # taken away while its step ran
                    tokens = self.running[chunk.request_id]
                    assert chunk.index == len(tokens)
                    tokens += chunk.token_ids
                    if chunk.is_last:
                        assert chunk.finish_reason == "length", chunk
                        self.ended[chunk.request_id] = len(tokens)
                        del self.running[chunk.request_id]
            case TakenOut(requests, _):
                assert {kept.request_id for kept in requests} <= {*self.leaving.pop(0)}
                for kept in requests:
                    had = self.running.pop(kept.request_id)
                    num_known = len(self.asked[kept.request_id].prompt_token_ids) + len(had)
                    assert 0 <= kept.kv_tokens <= num_known
                    if kept.kv_tokens:
                        self.out[kept.request_id] = had
            case Image(name, file=file):
                self.agent.send(self.back(name, self.handed.pop(name), file))
            case ImageOpened():
                pass
            case ModelLoaded() | ModelFailed():
                pass
            case other:
                raise AssertionError(other)


def test_books_balance_whatever_is_asked(agent: Agent) -> None:
    assert isinstance(agent.load("smol-b"), ModelLoaded)
    assert isinstance(agent.load("smol"), ModelLoaded)
    orders = Orders(agent, seed=3)
    for _ in range(NUM_ORDERS):
        agent.send(orders.draw())
        orders.hear()
    while orders.running or orders.handed:
        orders.hear()
    assert len(orders.ended) > 10
    assert orders.num_back > 5
    agent.send(LoadModel("smol"), Reset())
    stats = None
    num_runs = orders.num_sent + orders.num_back
    while stats is None or stats.num_received < num_runs or stats.num_running:
        event = agent.next()
        stats = event.stats if isinstance(event, StepReport) else stats
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, 33)
    assert len(members(agent.process.pid)) <= NUM_PROCESSES

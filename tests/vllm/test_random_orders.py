"""Two hundred orders drawn at random: every request ends once or was taken away, and nothing is left behind."""

from __future__ import annotations

import random

from gpu_node.engine.process.protocol import (
    AbortRequests,
    Command,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
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
        self.num_sent = 0

    def draw(self) -> Command:
        names = list(self.running)
        kind = self.chance.random()
        if kind < 0.6 or not names:
            name = f"r{self.num_sent}"
            self.num_sent += 1
            self.running[name] = []
            prompt = [self.chance.randrange(40_000) for _ in range(self.chance.randint(1, 60))]
            return RunAttempt(request(name, prompt, self.chance.randint(1, 30)))
        chosen = self.chance.sample(names, min(len(names), 2))
        if kind < 0.75:
            for name in chosen:
                del self.running[name]
            return AbortRequests([*chosen, "unknown"])
        return TakeOut([*chosen, "unknown"]) if kind < 0.9 else LoadModel(self.chance.choice(["smol", "smol-b"]))

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
                for kept in requests:
                    assert kept.kv_tokens == 0
                    self.running.pop(kept.request_id, None)
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
    while orders.running:
        orders.hear()
    assert len(orders.ended) > 20
    agent.send(LoadModel("smol"), Reset())
    stats = None
    while stats is None or stats.num_received < orders.num_sent or stats.num_running:
        event = agent.next()
        stats = event.stats if isinstance(event, StepReport) else stats
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, 33)
    assert len(members(agent.process.pid)) <= NUM_PROCESSES

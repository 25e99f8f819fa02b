"""Whatever the configuration becomes: a node with nothing to do pulls for, or loads, what it can serve of its queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from gpu_node.agent.decisions.actions import AdaptersDue, AgentEvent, Configured, GroupEntry, Pull, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol.protocol import LoadModel, ModelFailed, RunAttempt
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from tests.unit.agent.events import EPOCH, OPTIONS, entry, loaded, queue, step, taken, tokens

MODELS, ADAPTERS = "abc", "xy"
NUM_EVENTS = 120


class Node:
    """An agent, and an engine and a Redis that answer when they are asked to."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.agent = AgentCore("n0", EPOCH, "cpu", OPTIONS)
        self.unanswered: list[LoadModel | RunAttempt | Pull] = []
        self.waiting: dict[str, str] = {}
        """Models by the groups that the queue told last, as far as they have something."""
        self.num_requests = self.num_received = 0
        self.now = 0.0

    def do(self, event: AgentEvent) -> None:
        for action in self.agent.handle(event):
            if isinstance(action, Pull):
                self.unanswered.append(action)
            elif isinstance(action, Tell) and isinstance(action.command, LoadModel | RunAttempt):
                self.unanswered.append(action.command)
        self.agent.intake.check()

    def is_likely(self, share: float) -> bool:
        return self.chance.random() < share

    def some(self, names: Iterable[str], share: float) -> list[str]:
        return [name for name in names if self.is_likely(share)]

    def configure(self) -> None:
        def source(name: str) -> str:
            return f"other-{name}" if self.is_likely(0.1) else name

        def spec(name: str) -> ModelSpec:
            adapters = (AdapterSpec(name + one, source(one)) for one in self.some(ADAPTERS, 0.5))
            return replace(ModelSpec(name=name, source=source(name)), adapters=tuple(adapters))

        models = tuple(spec(name) for name in self.some(MODELS, 0.8) or ["a"])
        self.do(Configured(models, is_settled=self.is_likely(0.8)))

    def tell_queue(self) -> None:
        models = self.some(MODELS, 0.6)
        self.chance.shuffle(models)
        self.waiting = {f"g{model}": model for model in models}
        groups = [(group, model, 1) for group, model in self.waiting.items()]
        self.do(queue(*groups, hopeless=self.some(models, 0.3), awaits=self.chance.choice(["", *MODELS])))

    def answer(self) -> None:
        match self.unanswered.pop(0):
            case LoadModel(model, spec):
                if self.is_likely(0.1):
                    self.do(ModelFailed(model, "out of memory"))
                    return
                names = [one.name for one in spec.adapters] if spec is not None else []
                broken = self.some(names, 0.2)
                usable = tuple(name for name in names if name not in broken)
                self.do(loaded(model, adapters=usable, broken_adapters=dict.fromkeys(broken, "damaged")))
                self.do(step(num_admittable=8, num_received=self.num_received))
            case RunAttempt(payload):
                self.num_received += 1
                last = tokens(payload.request_id, 5, is_last=True)
                self.do(step(last, num_admittable=8, num_received=self.num_received))
            case Pull(group, num_asked):
                model = self.waiting.pop(group, "") or group.removeprefix("g")
                self.do(taken(group, num_asked, *[self.entry(model) for _ in range(self.chance.randrange(3))]))

    def entry(self, model: str) -> GroupEntry:
        self.num_requests += 1
        adapter = self.chance.choice(["", *(model + one for one in ADAPTERS)])
        return entry(f"r{self.num_requests}", model=model, adapter=adapter)

    def tick(self) -> None:
        self.now += self.chance.choice([0.5, 5.0, 30.0])
        self.do(AdaptersDue(self.now))

    def check(self) -> None:
        if self.unanswered or self.agent.running:
            return
        self.tick()
        if not self.unanswered:
            servable = [model for model in self.waiting.values() if model not in self.agent.models.broken]
            assert servable == [], "it stands still"


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_node_does_not_stand_still_beside_what_it_can_serve(first: int) -> None:
    for seed in range(first, first + 50):
        node = Node(Random(seed))
        node.configure()
        for _ in range(NUM_EVENTS):
            if node.unanswered and node.is_likely(0.6):
                node.answer()
            else:
                node.chance.choice([node.configure, node.tell_queue, node.tell_queue, node.tick])()
            node.check()

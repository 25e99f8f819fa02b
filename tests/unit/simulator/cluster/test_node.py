"""A simulated node: requests leave its engine, go on here or on another node, and come to the same tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from gpu_node.agent.decisions.evictions import KV_IMAGE_TTL_S
from gpu_node.executors.predicted.executor import PredictedExecutor
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node import SimulatedNode
from services.simulator.cluster.node_engine import SteppedEngine
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from shared.bus import streams
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.message import Message
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import (
    HANDED_OVER,
    Abort,
    Attempt,
    Enqueued,
    Evict,
    Evicted,
    EvictedRequest,
    Finished,
    GroupRef,
    Tokens,
    VirtualQueue,
)

M = TypeVar("M", bound=Message)

OPTIONS = EngineOptions(
    block_size=4, kv_cache_bytes=3 << 20, max_num_seqs=2, step_tokens=16, async_scheduling=False, host_models=1
)
COST = StepCost(step_s=0.02, token_s=0.0, context_token_s=0.0)
ON_DEVICE = ModelOnDevice(COST, kv_token_bytes=23_040, kv_cache_bytes=3 << 20, disk_load_s=2.0, host_load_s=0.5)
DEVICE = SimulatedDevice("d", {"a": ON_DEVICE, "b": ON_DEVICE}, kv_bytes_per_s=10e9)
NUM_TOKENS = 20


class Queue:
    """The queue manager's part: groups and virtual queues as the test says, and an ear on every stream."""

    def __init__(self, *nodes: str) -> None:
        self.bus = MemoryBus()
        self.sent: list[tuple[float, Message]] = []
        self.bus.listen(lambda now, _, message: self.sent.append((now, message)))
        models = {name: ModelSpec(name=name, source="none", max_model_len=64) for name in "ab"}

        def make_engine() -> SteppedEngine:
            return SteppedEngine(PredictedExecutor(COST, OPTIONS, 23_040, vocab_size=100), OPTIONS)

        self.nodes = {name: SimulatedNode(self.bus, name, models, make_engine, DEVICE, OPTIONS) for name in nodes}

    def submit(self, group: str, request_id: str, model: str = "a", kv_at: str = "") -> None:
        if not kv_at:
            sampling = Sampling(max_tokens=NUM_TOKENS, seed=sum(request_id.encode()))
            self.bus.payloads[request_id] = Payload(request_id, 0, "gw", model, list(range(7)), sampling)
        handed_over = [one for told in self.told(Evicted) for one in told.requests if one.request_id == request_id]
        image = handed_over[-1].image if kv_at == HANDED_OVER else None
        entry = Enqueued(request_id=request_id, attempt=0, gateway="gw", kv_at=kv_at, image=image)
        self.bus.send(streams.group(group), entry)

    def order(self, node: str, *groups: tuple[str, str, int], yielding: list[str] | None = None) -> None:
        refs = [GroupRef(*group) for group in groups]
        epoch = self.nodes[node].core.epoch
        message = VirtualQueue(node=node, epoch=epoch, groups=refs, yielding=yielding or [])
        self.bus.send(streams.node_inbox(node), message)

    def run(self, seconds: float) -> None:
        """Advance, with the engines' books checked after every event."""
        end_s = self.bus.now + seconds
        self.bus.at(end_s, lambda: None)
        while self.bus.now < end_s and self.bus.step():
            for node in self.nodes.values():
                node.engine.check()

    def told(self, kind: type[M]) -> list[M]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    def token_ids(self, request_id: str) -> list[int]:
        """As they came, doubled ones too."""
        chunks = [chunk for tokens in self.told(Tokens) for chunk in tokens.chunks if chunk.request_id == request_id]
        return [token for chunk in chunks for token in chunk.token_ids]

    def first_token_s(self, request_id: str) -> float:
        times = (
            now
            for now, message in self.sent
            if isinstance(message, Tokens) and any(chunk.request_id == request_id for chunk in message.chunks)
        )
        return next(times)

    def finished(self) -> list[str]:
        return [request.request_id for finished in self.told(Finished) for request in finished.requests]


def make_busy_queue(*nodes: str) -> Queue:
    """Two batch requests fill n0 and have had some tokens."""
    queue = Queue(*(nodes or ("n0",)))
    queue.submit("batch", "b0")
    queue.submit("batch", "b1")
    queue.order("n0", ("batch", "a", 2))
    queue.run(ON_DEVICE.disk_load_s + 0.1)
    return queue


def undisturbed(request_id: str) -> list[int]:
    queue = Queue("n0")
    queue.submit("g", request_id)
    queue.order("n0", ("g", "a", 1))
    queue.run(10)
    return queue.token_ids(request_id)


def test_an_urgent_request_starts_behind_the_step_that_runs_and_the_evicted_one_goes_on() -> None:
    queue = make_busy_queue()
    queue.submit("urgent", "u0")
    rung_s = queue.bus.now
    queue.order("n0", ("urgent", "a", 1), yielding=["batch"])
    queue.run(0.1)
    (evicted,) = queue.told(Evicted)
    num_done = len(queue.token_ids("b1"))
    assert 0 < num_done < NUM_TOKENS
    assert evicted.requests == [EvictedRequest("b1", 0, num_done, kv_tokens=7 + num_done - 1, kv_at="n0")]
    assert queue.first_token_s("u0") - rung_s < 2 * COST.step_s + 0.003, "the rest of a step, and its own first one"
    queue.submit("resumed", "b1", kv_at="n0")
    queue.order("n0", ("resumed", "a", 1))
    queue.run(10)
    assert sorted(queue.finished()) == ["b0", "b1", "u0"]
    assert [queue.token_ids(name) for name in ("b0", "b1", "u0")] == [undisturbed(name) for name in ("b0", "b1", "u0")]


def test_a_change_of_model_and_back_computes_nothing_again() -> None:
    queue = make_busy_queue()
    queue.submit("urgent", "u0", "b")
    queue.order("n0", ("urgent", "b", 1), yielding=["batch"])
    queue.run(5)
    assert queue.finished() == ["u0"]
    (evicted,) = queue.told(Evicted)
    for request in evicted.requests:
        queue.submit("resumed", request.request_id, kv_at=request.kv_at)
    queue.order("n0", ("resumed", "a", 2))
    queue.run(5)
    assert sorted(queue.finished()) == ["b0", "b1", "u0"]
    assert [queue.token_ids(name) for name in ("b0", "b1")] == [undisturbed(name) for name in ("b0", "b1")]
    assert queue.nodes["n0"].num_swaps == 3
    assert queue.nodes["n0"].core.heartbeat().facts.swap_s == ON_DEVICE.host_load_s


def test_a_request_goes_on_at_another_node_with_its_kv() -> None:
    queue = make_busy_queue("n0", "n1")
    epoch = queue.nodes["n0"].core.epoch
    queue.bus.send(streams.node_inbox("n0"), Evict(node="n0", epoch=epoch, requests=[Attempt("b0", 0)]))
    queue.run(0.1)
    (evicted,) = queue.told(Evicted)
    assert [request.kv_at for request in evicted.requests] == [HANDED_OVER]
    assert [image.attempt for image in queue.bus.images.values()] == [Attempt("b0", 0)]
    queue.nodes["n0"].engine.check()
    queue.submit("moved", "b0", kv_at=HANDED_OVER)
    queue.order("n1", ("moved", "a", 1))
    queue.run(10)
    assert sorted(queue.finished()) == ["b0", "b1"]
    assert queue.token_ids("b0") == undisturbed("b0")
    assert queue.bus.images == {}


def test_without_its_image_a_request_is_given_back_and_goes_on_behind_its_tokens() -> None:
    queue = make_busy_queue("n0", "n1")
    epoch = queue.nodes["n0"].core.epoch
    queue.bus.send(streams.node_inbox("n0"), Evict(node="n0", epoch=epoch, requests=[Attempt("b0", 0)]))
    queue.run(KV_IMAGE_TTL_S + 1)
    assert queue.bus.images == {}
    done = queue.token_ids("b0")
    queue.submit("moved", "b0", kv_at=HANDED_OVER)
    queue.order("n1", ("moved", "a", 1))
    queue.run(10)
    assert queue.token_ids("b0") == done, "none is drawn again"
    assert queue.told(Evicted)[-1].requests == [EvictedRequest("b0", 0, 0, 0, "n1")]
    payload = queue.bus.payloads["b0"]
    queue.bus.payloads["b0"] = replace(payload, attempt=1, outputs=[Output(done)])
    queue.bus.send(streams.group("again"), Enqueued(request_id="b0", attempt=1, gateway="gw"))
    queue.order("n1", ("again", "a", 1))
    queue.run(10)
    assert queue.token_ids("b0") == undisturbed("b0")
    (finished,) = [one for told in queue.told(Finished) for one in told.requests if one.request_id == "b0"]
    assert finished.output_tokens == NUM_TOKENS


def test_a_parked_request_that_is_given_up_frees_host_memory() -> None:
    queue = make_busy_queue()
    queue.submit("urgent", "u0")
    queue.order("n0", ("urgent", "a", 1), yielding=["batch"])
    queue.run(0.1)
    queue.bus.send(streams.node_inbox("n0"), Abort(requests=[Attempt("b1", 0)]))
    queue.run(0.1)
    assert queue.nodes["n0"].engine.hand_over(["b1"]) == []

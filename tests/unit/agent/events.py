"""What happens to an agent, in few words."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_node.agent.decisions.actions import GroupEntry, Taken
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import ModelLoaded, StepReport, TakenOut
from gpu_node.engine.requests.image import Kept
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import DecodeYield, StepCost
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import Attempt, Chunk, Enqueued, GroupRef, ImageTicket, VirtualQueue

EPOCH = "n0.1"
OPTIONS = EngineOptions(max_num_seqs=8, step_tokens=64)


def make_agent(model: str = "", num_admittable: int = 0) -> AgentCore:
    """An agent whose engine holds a model and has room for so many requests; ``""`` for a fresh one."""
    agent = AgentCore("n0", EPOCH, "cpu", OPTIONS)
    if model:
        agent.handle(loaded(model))
        agent.handle(step(num_admittable=num_admittable))
    return agent


def queue(
    *groups: tuple[str, str, int] | tuple[str, str, int, int] | tuple[str, str, int, int, int],
    yielding: Iterable[str] = (),
    hopeless: Iterable[str] = (),
    awaits: str = "",
    epoch: str = EPOCH,
) -> VirtualQueue:
    """The virtual queue: (group, model, number waiting, where it has time: most that run, and prompts), head first;
    running groups that stand behind it; models that no node can load; the one to load for those who come.
    """
    refs = [GroupRef(*group) for group in groups]
    return VirtualQueue(
        node="n0", epoch=epoch, groups=refs, yielding=list(yielding), hopeless=list(hopeless), awaits=awaits
    )


def entry(
    request_id: str,
    attempt: int = 0,
    *,
    model: str = "a",
    gateway: str = "gw",
    payload: Payload | None = None,
    kv_at: str = "",
    image: ImageTicket | None = None,
    adapter: str = "",
) -> GroupEntry:
    """A group entry with the payload that belongs to it, or another one."""
    enqueued = Enqueued(request_id=request_id, attempt=attempt, gateway=gateway, kv_at=kv_at, image=image)
    own = payload_of(request_id, attempt, model=model, gateway=gateway, adapter=adapter)
    return GroupEntry(f"{request_id}-{attempt}".encode(), enqueued, payload or own)


def payload_of(
    request_id: str,
    attempt: int = 0,
    *,
    model: str = "a",
    gateway: str = "gw",
    output: list[int] | None = None,
    adapter: str = "",
) -> Payload:
    return Payload(
        request_id=request_id,
        attempt=attempt,
        gateway=gateway,
        model=model,
        prompt_token_ids=[1, 2],
        sampling=Sampling(max_tokens=9),
        outputs=[Output(output)] if output else [],
        adapter=adapter,
    )


def taken(group: str, num_asked: int, *entries: GroupEntry) -> Taken:
    return Taken(group, num_asked, list(entries))


def loaded(
    model: str,
    load_s: float = 1.5,
    *,
    source: str = "disk",
    tiers: dict[str, str] | None = None,
    kv_format: str = "",
    adapters: tuple[str, ...] = (),
    broken_adapters: dict[str, str] | None = None,
) -> ModelLoaded:
    return ModelLoaded(
        model=model,
        num_blocks=100,
        block_size=4,
        block_bytes=64,
        max_model_len=64,
        load_s=load_s,
        source=source,
        tiers=tiers or {},
        kv_format=kv_format,
        adapters=adapters,
        broken_adapters=broken_adapters or {},
    )


def stats(
    num_admittable: int = 0,
    num_received: int = 0,
    num_waiting: int = 0,
    cost: StepCost | None = None,
    num_remote_blocks: int = 0,
    decode: DecodeYield | None = None,
) -> EngineStats:
    """An engine that has room for so many more and has seen so many requests in all, of which some wait in it."""
    return EngineStats(
        num_running=0,
        num_waiting=num_waiting,
        num_free_blocks=50,
        num_admittable=num_admittable,
        step_s=0.1,
        num_received=num_received,
        cost=cost,
        num_remote_blocks=num_remote_blocks,
        decode=decode,
    )


def step(*chunks: Chunk, num_admittable: int = 0, num_received: int = 0, num_waiting: int = 0) -> StepReport:
    """A step of the engine, and what can be said of it then."""
    return StepReport(list(chunks), stats(num_admittable, num_received, num_waiting))


def evicted(kv_tokens: dict[str, int], *, num_admittable: int = 0, num_received: int = 0) -> TakenOut:
    """The engine has taken these requests out and kept the KV of so many tokens of each."""
    kept = [Kept(*item) for item in kv_tokens.items()]
    return TakenOut(kept, stats(num_admittable, num_received))


def tokens(
    request_id: str,
    *token_ids: int,
    attempt: int = 0,
    index: int = 0,
    finish_reason: str = "",
    choice: int = 0,
    is_last: bool | None = None,
) -> Chunk:
    """A chunk of one choice; with nothing else said its end is that of the attempt."""
    ends = bool(finish_reason) if is_last is None else is_last
    return Chunk(request_id, attempt, index, list(token_ids), finish_reason, choice=choice, is_last=ends)


def attempt_of(request_id: str, attempt: int = 0) -> Attempt:
    return Attempt(request_id, attempt)

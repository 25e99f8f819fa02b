"""Drives an engine through a life of arrivals and departures, as a simulated node does, and notes what clients see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_node.executors.predicted import PredictedExecutor
from services.simulator.device import VOCAB_SIZE, Device, ModelOnDevice
from services.simulator.fast_engine import FastEngine
from services.simulator.node_engine import NodeEngine, SteppedEngine
from shared.config import EngineOptions, ModelSpec
from shared.messages import Chunk
from shared.payload import Payload, Sampling
from shared.step_cost import StepCost

# powers of two, so that sums of durations are exact whatever their order
COST = StepCost(step_s=2.0**-6, token_s=2.0**-10, context_token_s=2.0**-16)
TICK_S = 2.0**-5 + 2.0**-30  # events never fall on the border of two steps
SPEC = ModelSpec(name="m", source="none", max_model_len=64)
TOKEN_BYTES = 1 << 14


@dataclass(frozen=True)
class Ask:
    """A request: when it comes, what it is, and how long its answer is if nothing stops it."""

    at_tick: int
    prompt_tokens: int
    answer_tokens: int
    max_tokens: int
    leaves_after_ticks: int | None = None


@dataclass
class Seen:
    """What the client of a request sees."""

    first_token_s: float | None = None
    finished_s: float | None = None
    num_tokens: int = 0
    reason: str = ""


@dataclass
class Life:
    """Every request's times, and what the engine did."""

    seen: dict[str, Seen] = field(default_factory=dict)
    num_events: int = 0
    num_preemptions: int = 0
    end_s: float = 0.0


def options(num_blocks: int, max_num_seqs: int = 4, step_tokens: int = 16) -> EngineOptions:
    """With so many blocks of 4 tokens."""
    return EngineOptions(
        block_size=4,
        kv_cache_bytes=num_blocks * 4 * TOKEN_BYTES,
        max_num_seqs=max_num_seqs,
        step_tokens=step_tokens,
        async_scheduling=False,
    )


def stepped(asks: list[Ask], engine_options: EngineOptions) -> SteppedEngine:
    """The live bookkeeping."""
    executor = PredictedExecutor(
        COST, engine_options, TOKEN_BYTES, VOCAB_SIZE, lambda one: asks[one.seed].answer_tokens
    )
    engine = SteppedEngine(executor, engine_options)
    engine.load_model(SPEC)
    return engine


def fast(asks: list[Ask], engine_options: EngineOptions) -> FastEngine:
    """The one that jumps."""
    model = ModelOnDevice(COST, TOKEN_BYTES, engine_options.kv_cache_bytes, 1.0, 0.1)
    device = Device("d", {"m": model}, kv_bytes_per_s=1e9)
    engine = FastEngine(device, engine_options, lambda one: asks[one.seed].answer_tokens)
    engine.load_model(SPEC)
    return engine


def payload(number: int, ask: Ask) -> Payload:
    """Of the request with this number; no two prompts begin alike."""
    prompt = [number, *range(ask.prompt_tokens - 1)]
    return Payload(str(number), 0, "g", "m", prompt, Sampling(max_tokens=ask.max_tokens, seed=number))


Action = Callable[[], list[Chunk]]


def live(engine: NodeEngine, asks: list[Ask], check: Callable[[], None]) -> Life:
    """Let everything happen; ``check`` after each event."""
    life = Life()
    coming: list[tuple[float, int, Action]] = []
    for number, ask in enumerate(asks):
        life.seen[str(number)] = Seen()
        request = payload(number, ask)
        coming.append((ask.at_tick * TICK_S, number, lambda request=request: engine.add(request)))  # type: ignore[misc]
        if ask.leaves_after_ticks is not None:
            leaves_s = (ask.at_tick + ask.leaves_after_ticks) * TICK_S
            coming.append((leaves_s, len(asks) + number, lambda number=number: _abort(engine, number, life)))  # type: ignore[misc]
    coming.sort(key=lambda one: one[:2])
    pending: list[Action] = []
    end_s: float | None = None
    while coming or end_s is not None:
        if end_s is not None and (not coming or end_s <= coming[0][0]):
            now, end_s = end_s, None
            _take(life, engine.finish(), now)
            life.num_events += 1
        else:
            now, _, action = coming.pop(0)
            pending.append(action)
            if end_s is not None:
                end_s = engine.interrupt(now)
                continue
        for action in pending:
            _take(life, action(), now)
        pending.clear()
        check()
        if engine.has_work:
            end_s = engine.start(now)
        life.end_s = now
    return life


def _abort(engine: NodeEngine, number: int, life: Life) -> list[Chunk]:
    """The client leaves; how much it had by then is not the same where tokens come together."""
    engine.abort([str(number)])
    life.seen[str(number)].num_tokens = 0
    return []


def _take(life: Life, chunks: list[Chunk], now: float) -> None:
    for chunk in chunks:
        seen = life.seen[chunk.request_id]
        assert chunk.index == seen.num_tokens, "no token is missing"
        if chunk.token_ids and seen.first_token_s is None:
            seen.first_token_s = now
        seen.num_tokens += len(chunk.token_ids)
        if chunk.is_last:
            seen.finished_s, seen.reason = now, chunk.finish_reason

"""Drives an engine through a life of arrivals and departures, as a simulated node does, and notes what clients see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpu_node.engine.measures.counts import TierCounts
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.executors.predicted.executor import AnswerTokens, PredictedExecutor
from services.simulator.cluster.node_engine import NodeEngine, SteppedEngine
from services.simulator.devices.device import VOCAB_SIZE, ModelOnDevice, SimulatedDevice
from services.simulator.fast.engine import FastEngine
from shared.config.engines.engine import EngineOptions, ModelSpec, Preemption
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Payload, Sampling

# powers of two, so that sums of durations are exact whatever their order
COST = StepCost(step_s=2.0**-6, token_s=2.0**-10, context_token_s=2.0**-16, attended_token_s=2.0**-18)
TICK_S = 2.0**-5 + 2.0**-30  # events never fall on the border of two steps
SPEC = ModelSpec(name="m", source="none", max_model_len=64)
TOKEN_BYTES = 1 << 14
KV_BYTES_PER_S = 2.0**24


@dataclass(frozen=True)
class Ask:
    """A request: when it comes, what it is, and how long its answer is if nothing stops it."""

    at_tick: int
    prompt_tokens: int
    answer_tokens: int
    max_tokens: int
    leaves_after_ticks: int | None = None
    evicted_after_ticks: int | None = None
    out_ticks: int = 0
    """How long it stays out."""
    redrawn_after_ticks: int | None = None
    redrawn_tokens: int = 0
    """How long its answer is from then on."""


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
    swapped: TierCounts = field(default_factory=TierCounts)
    num_kept_tokens: int = 0
    end_s: float = 0.0


Action = Callable[[], list[OutputChunk]]


def options(
    num_blocks: int,
    max_num_seqs: int = 4,
    step_tokens: int = 16,
    preemption: Preemption = "recompute",
    num_host_blocks: int = 0,
    *,
    overlap_swaps: bool = True,
    lazy_swaps: bool = True,
) -> EngineOptions:
    """With so many blocks of 4 tokens."""
    return EngineOptions(
        block_size=4,
        kv_cache_bytes=num_blocks * 4 * TOKEN_BYTES,
        max_num_seqs=max_num_seqs,
        step_tokens=step_tokens,
        evicted_kv_bytes=(num_blocks - 6) * 4 * TOKEN_BYTES,  # so that not all has room
        async_scheduling=False,
        preemption=preemption,
        host_kv_bytes=num_host_blocks * 4 * TOKEN_BYTES,
        overlap_swaps=overlap_swaps,
        lazy_swaps=lazy_swaps,
    )


def stepped(asks: list[Ask], engine_options: EngineOptions, kv_bytes_per_s: float = KV_BYTES_PER_S) -> SteppedEngine:
    """The live bookkeeping, which knows what steps cost."""
    answer_tokens: AnswerTokens = lambda one: asks[one.seed].answer_tokens  # noqa: E731
    executor = PredictedExecutor(COST, engine_options, TOKEN_BYTES, VOCAB_SIZE, kv_bytes_per_s, answer_tokens)
    engine = SteppedEngine(executor, engine_options, profiled={"m": COST})
    engine.load_model(SPEC)
    return engine


def fast(asks: list[Ask], engine_options: EngineOptions, kv_bytes_per_s: float = KV_BYTES_PER_S) -> FastEngine:
    """The one that jumps."""
    model = ModelOnDevice(COST, TOKEN_BYTES, engine_options.unmeasured_kv_bytes, 1.0, 0.1)
    device = SimulatedDevice("d", {"m": model}, kv_bytes_per_s=kv_bytes_per_s)
    engine = FastEngine(device, engine_options, lambda one: asks[one.seed].answer_tokens)
    engine.load_model(SPEC)
    return engine


def payload(number: int, ask: Ask, attempt: int = 0, answer: Sequence[int] = ()) -> Payload:
    """Of the request with this number, of whose answer the client has this much; no two prompts begin alike."""
    prompt = [number, *range(ask.prompt_tokens - 1)]
    outputs = [Output(list(answer))] if answer else []
    return Payload(str(number), attempt, "g", "m", prompt, Sampling(max_tokens=ask.max_tokens, seed=number), outputs)


@dataclass
class Driver:
    """An engine on its way through the life of its requests."""

    engine: NodeEngine
    asks: list[Ask]
    life: Life = field(default_factory=Life)
    out: dict[int, Payload] = field(default_factory=dict)
    """Requests that are evicted, and how they come back."""
    tokens: dict[str, list[int]] = field(default_factory=dict)

    def coming(self) -> list[tuple[float, int, partial[list[OutputChunk]]]]:
        """What is going to happen, in order."""
        found: list[tuple[float, int, partial[list[OutputChunk]]]] = []
        for number, ask in enumerate(self.asks):
            self.life.seen[str(number)] = Seen()
            ticks: list[tuple[int | None, Callable[[int], list[OutputChunk]]]] = [
                (0, self._add),
                (ask.evicted_after_ticks, self._evict),
                (None if ask.evicted_after_ticks is None else ask.evicted_after_ticks + ask.out_ticks, self._resume),
                (ask.leaves_after_ticks, self._abort),
                (ask.redrawn_after_ticks, self._redraw),
            ]
            for ticks_later, action in ticks:
                if ticks_later is not None:
                    found.append(((ask.at_tick + ticks_later) * TICK_S, len(found), partial(action, number)))
        return sorted(found, key=lambda one: one[:2])

    def live(self) -> Life:
        """Let everything happen, with the books checked after each event."""
        coming = self.coming()
        pending: list[Action] = []
        end_s: float | None = None
        while coming or end_s is not None:
            if end_s is not None and (not coming or end_s <= coming[0][0]):
                now, end_s = end_s, None
                self._take(self.engine.finish(), now)
                self.life.num_events += 1
            else:
                now, _, action = coming.pop(0)
                if end_s is not None:
                    end_s = self.engine.interrupt(now)
                    if action.func == self._redraw:
                        action()  # no command: it waits for no step
                    else:
                        pending.append(action)
                    continue
                pending.append(action)
            for waiting in pending:
                self._take(waiting(), now)
            pending.clear()
            self.engine.check()
            if self.engine.has_work:
                end_s = self.engine.start(now)
            self.life.end_s = now
        counts = self.engine.counts
        self.life.num_preemptions = counts.num_preemptions
        self.life.swapped = counts.swapped
        return self.life

    def _add(self, number: int) -> list[OutputChunk]:
        return self.engine.add(payload(number, self.asks[number]))

    def _evict(self, number: int) -> list[OutputChunk]:
        chunks, kept = self.engine.evict([str(number)])
        for one in kept:
            self.life.num_kept_tokens += one.kv_tokens
            answer = [*self.tokens.get(str(number), ()), *(token for chunk in chunks for token in chunk.token_ids)]
            again = payload(number, self.asks[number], 1, answer)
            self.out[number] = payload(number, self.asks[number]) if one.kv_tokens else again
        return chunks

    def _resume(self, number: int) -> list[OutputChunk]:
        return self.engine.add(self.out[number]) if number in self.out else []

    def _abort(self, number: int) -> list[OutputChunk]:
        """The client leaves; how much it had by then is not the same where tokens come together."""
        self.engine.abort([str(number)])
        self.out.pop(number, None)
        self.life.seen[str(number)].num_tokens = -1
        return []

    def _redraw(self, number: int) -> list[OutputChunk]:
        ask = self.asks[number]
        self.asks[number] = replace(ask, answer_tokens=ask.redrawn_tokens)
        self.engine.redraw()
        return []

    def _take(self, chunks: list[OutputChunk], now: float) -> None:
        for chunk in chunks:
            seen = self.life.seen[chunk.request_id]
            assert chunk.start == seen.num_tokens, "no token is missing"
            if chunk.token_ids and seen.first_token_s is None:
                seen.first_token_s = now
            seen.num_tokens += len(chunk.token_ids)
            self.tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
            if chunk.is_last:
                seen.finished_s, seen.reason = now, chunk.finish_reason

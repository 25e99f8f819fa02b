"""What `treadle bench vllm` measures, part by part; each side is asked in turn, with prompts that none has seen."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from cli.bench.percentiles import percentile
from cli.bench.vllm.vllm_sides import MODEL, OTHER, Direct, RunningCluster, TokenLists, VllmEnd
from cli.errors import ClusterError
from gpu_node.bench.point import BenchPoint
from gpu_node.engine.process.protocol.protocol import RunAttempt, StepReport, TakenOut, TakeOut
from shared.messages.requests.payload import Payload, Sampling

FIRST_TOKEN, LAST_TOKEN = 1_000, 40_000
TTFT_PROMPT_TOKENS = 32
MIN_AHEAD = 30
"""Predictions are judged behind so many."""
QUEUED_PROMPT_TOKENS, QUEUED_OUTPUT_TOKENS = 256, (64, 256)
EVICTED_PROMPT_TOKENS, EVICTED_AT_TOKENS, EVICTED_MAX_TOKENS = 300, 8, 64
NUM_CHANGES = 5
_PLACE = b": queue "

Counting = Callable[[], None]


class MadePrompts:
    """Made up; no two begin alike."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - text to compute

    def make(self, num: int, num_tokens: int) -> TokenLists:
        """So many of a length."""
        return [[self.chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(num_tokens)] for _ in range(num)]


@dataclass
class Streamed:
    """One request as its client saw it; seconds since all were sent."""

    first_s: float = 0.0
    last_s: float = 0.0
    places: list[tuple[float, int, float]] = field(default_factory=list)
    """When it was told, how many were ahead, and how long it would take."""


async def stream(url: str, prompts: TokenLists, max_tokens: list[int], *, tells_queue: bool = False) -> list[Streamed]:
    """All at once."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        began_s = time.perf_counter()
        calls = [_one(session, url, *asked, began_s, tells_queue) for asked in zip(prompts, max_tokens, strict=True)]
        return await asyncio.gather(*calls)


async def _one(
    session: aiohttp.ClientSession, url: str, prompt: list[int], max_tokens: int, began_s: float, tells_queue: bool
) -> Streamed:
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True} | ({"include_queue": True} if tells_queue else {}),
    }
    seen = Streamed()
    num_tokens = 0
    async with session.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise ClusterError(f"{response.status}: {(await response.text())[:300]}")
        async for line in response.content:
            now_s = time.perf_counter() - began_s
            if line.startswith(_PLACE):
                told = json.loads(line.removeprefix(_PLACE))
                if told["wait_s"] is not None:
                    seen.places.append((now_s, told["num_ahead"], told["wait_s"]))
            elif line.startswith(b"data: {"):
                event = json.loads(line.removeprefix(b"data: "))
                if event.get("choices"):
                    seen.first_s, seen.last_s = seen.first_s or now_s, now_s
                num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    if num_tokens != max_tokens:
        raise ClusterError(f"a stream has brought {num_tokens} tokens instead of {max_tokens}")
    return seen


def throughput(
    point: BenchPoint, rounds: int, alone: Direct, through: RunningCluster, prompts: MadePrompts, advance: Counting
) -> dict[str, Any]:
    """Output tokens a second of both, and what they are to each other; who is first alternates."""
    seconds: dict[str, list[float]] = {"direct": [], "through": []}
    before = through.engine_cpu_s()
    preempted = through.preemptions()
    for number in range(rounds):
        asked = prompts.make(point.num_requests, point.num_prompt_tokens)
        for side in ("direct", "through") if number % 2 else ("through", "direct"):
            if side == "direct":
                seconds[side].append(alone.ask(asked, point.num_output_tokens)[0])
            else:
                seen = asyncio.run(stream(through.url, asked, [point.num_output_tokens] * len(asked)))
                seconds[side].append(max(one.last_s for one in seen))
        advance()
    head_s, below_s = (now - then for now, then in zip(through.engine_cpu_s(), before, strict=True))
    num_tokens = point.num_requests * point.num_output_tokens
    rates = {side: num_tokens / statistics.median(taken) for side, taken in seconds.items()}
    return {
        "point": str(point),
        "direct_tok_s": rates["direct"],
        "through_tok_s": rates["through"],
        "ratio": rates["through"] / rates["direct"],
        "bridge_cpu_share": head_s / (head_s + below_s),
        "preemptions": through.preemptions() - preempted,
        "seconds": seconds,
    }


def first_tokens(
    num_pairs: int, alone: Direct, through: RunningCluster, prompts: MadePrompts, advance: Counting
) -> dict[str, float]:
    """Seconds that one client waits longer for a first token than vLLM alone takes to say it."""
    added: list[float] = []
    for number in range(num_pairs):
        (prompt,) = prompts.make(1, TTFT_PROMPT_TOKENS)
        taken = {}
        for side in ("direct", "through") if number % 2 else ("through", "direct"):
            if side == "direct":
                taken[side] = alone.ask([prompt], 1)[0]
            else:
                (seen,) = asyncio.run(stream(through.url, [prompt], [1]))
                taken[side] = seen.first_s
        added.append(taken["through"] - taken["direct"])
        advance()
    added.sort()
    return {"p50": percentile(added, 50), "p99": percentile(added, 99)}


def predictions(num_requests: int, through: RunningCluster, prompts: MadePrompts) -> dict[str, Any]:
    """How far predicted starts behind many were off, and how often vLLM computed again, where all have to wait."""
    asked = prompts.make(num_requests, QUEUED_PROMPT_TOKENS)
    lengths = [prompts.chance.randint(*QUEUED_OUTPUT_TOKENS) for _ in asked]
    before = through.preemptions()
    seen = asyncio.run(stream(through.url, asked, lengths, tells_queue=True))
    errors = [
        abs(wait_s / (one.first_s - told_s) - 1)
        for one in seen
        for told_s, num_ahead, wait_s in one.places
        if num_ahead > MIN_AHEAD and one.first_s > told_s
    ]
    return {
        "predicted_start_error": statistics.median(errors) if errors else None,
        "num_predictions": len(errors),
        "saturated": {"requests": num_requests, "preemptions": through.preemptions() - before},
    }


# --- behind the engine process ----------------------------------------------------------------------------------------


def agreement(point: BenchPoint, alone: Direct, end: VllmEnd, prompts: MadePrompts) -> float:
    """Part of the tokens that are the same, up to where two answers part: sums hang on the batch."""
    asked = prompts.make(point.num_requests, point.num_prompt_tokens)
    wanted = alone.ask(asked, point.num_output_tokens)[1]
    heard = EngineTold(end)
    names = [f"agree-{number}" for number in range(len(asked))]
    end.send(*(run(name, prompt, point.num_output_tokens) for name, prompt in zip(names, asked, strict=True)))
    heard.until(lambda: all(len(heard.tokens.get(name, ())) == point.num_output_tokens for name in names))
    return _agreement(wanted, [heard.tokens[name] for name in names])


def evictions(num_rounds: int, end: VllmEnd, prompts: MadePrompts) -> dict[str, float]:
    """Requests that leave with their KV and go on: what is kept, what is computed again, how long they are silent."""
    kept_tokens, recomputed, resumed_s = [], [], []
    for number, prompt in enumerate(prompts.make(num_rounds, EVICTED_PROMPT_TOKENS)):
        name = f"evict-{number}"
        heard = EngineTold(end)
        asked = run(name, prompt, EVICTED_MAX_TOKENS)
        end.send(asked)
        heard.until(lambda: len(heard.tokens.get(name, ())) >= EVICTED_AT_TOKENS)  # noqa: B023 - asked at once
        end.send(TakeOut([name]))
        heard.until(lambda: heard.taken is not None)  # noqa: B023 - likewise
        assert heard.taken is not None
        (kept,) = heard.taken.requests
        num_known = len(prompt) + len(heard.tokens[name])
        before = end.restored_tokens
        started_s = time.perf_counter()
        end.send(asked)
        heard.until(lambda: len(prompt) + len(heard.tokens[name]) > num_known)  # noqa: B023 - likewise
        resumed_s.append(time.perf_counter() - started_s)
        kept_tokens.append(kept.kv_tokens)
        recomputed.append(num_known - 1 - (end.restored_tokens - before))
        heard.until(lambda: len(heard.tokens[name]) == EVICTED_MAX_TOKENS)  # noqa: B023 - likewise
    return {
        "kept_tokens": statistics.median(kept_tokens),
        "recomputed_tokens": sum(recomputed),
        "resume_s": statistics.median(resumed_s),
    }


def changes(end: VllmEnd) -> dict[str, float]:
    """Seconds: the first load of another model, and between two that stay."""
    first = end.load(OTHER).load_s
    taken = []
    for number in range(NUM_CHANGES):
        started_s = time.perf_counter()
        end.load(MODEL if number % 2 == 0 else OTHER)
        taken.append(time.perf_counter() - started_s)
    return {"first": first, "resident": statistics.median(taken)}


class EngineTold:
    """What an engine process has said of requests."""

    def __init__(self, end: VllmEnd) -> None:
        self._end = end
        self.tokens: dict[str, list[int]] = {}
        self.taken: TakenOut | None = None

    def until(self, is_enough: Callable[[], bool]) -> None:
        """Listen."""
        while not is_enough():
            match self._end.next():
                case StepReport(chunks):
                    for chunk in chunks:
                        if chunk.error:
                            raise ClusterError(chunk.error)
                        self.tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
                case TakenOut() as taken:
                    self.taken = taken


def run(name: str, prompt: list[int], max_tokens: int) -> RunAttempt:
    """Greedy, to the last token."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return RunAttempt(Payload(name, 0, "bench", MODEL, prompt, sampling))


def _agreement(first: TokenLists, second: TokenLists) -> float:
    same = sum(
        next((place for place, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]), len(a))
        for a, b in zip(first, second, strict=True)
    )
    return same / sum(map(len, first))

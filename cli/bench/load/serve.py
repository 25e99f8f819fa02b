"""Closed-loop load: each of C clients sends its next request when the last one is answered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from cli.bench.load.completion_stream import CompletionTimes, StreamError, stream_completion
from cli.bench.percentiles import summary
from cli.errors import CliError

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 600.0  # a request may wait in the queue for its model to be loaded
MODELS_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 20
_EXAMPLES = 3
_WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "from", "at")


@dataclass(frozen=True, kw_only=True)
class LoadSpec:
    """What load to make."""

    url: str
    models: tuple[str, ...]
    num_requests: int
    concurrency: int
    prompt_tokens: int
    max_tokens: int
    api_key: str | None = None


@dataclass
class LoadResult:
    """What came of it."""

    spec: LoadSpec
    completions: list[CompletionTimes] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """Texts of the first errors."""
    duration_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Counts, rates and percentiles; failed requests count under ``errors`` only."""
        done = self.completions
        output_tokens = sum(completion.output_tokens for completion in done)
        return {
            "url": self.spec.url,
            "models": list(self.spec.models),
            "concurrency": self.spec.concurrency,
            "requests": self.spec.num_requests,
            "succeeded": len(done),
            "errors": dict(self.errors),
            "duration_s": self.duration_s,
            "requests_per_s": len(done) / self.duration_s,
            "prompt_tokens": sum(completion.prompt_tokens for completion in done),
            "output_tokens": output_tokens,
            "output_tokens_per_s": output_tokens / self.duration_s,
            "ttft_s": summary(completion.ttft_s for completion in done),
            "tpot_s": summary(completion.tpot_s for completion in done if completion.tpot_s is not None),
            "e2e_s": summary(completion.e2e_s for completion in done),
        }


async def served_models(url: str, api_key: str | None) -> list[str]:
    """Names of the models that a server offers, at least one."""
    try:
        async with _session(api_key, MODELS_TIMEOUT_S) as session, session.get(f"{url}/v1/models") as response:
            if response.status != 200:
                raise CliError(f"{url}/v1/models answered {response.status}: {(await response.text())[:300]}")
            names = [str(model["id"]) for model in (await response.json())["data"]]
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CliError(f"{url} does not answer ({error}); is the cluster up? See `treadle status`") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CliError(f"{url}/v1/models did not answer with a list of models") from error
    if not names:
        raise CliError(f"{url} offers no model")
    return names


async def run_load(spec: LoadSpec, advance: Callable[[], None]) -> LoadResult:
    """Make the load and measure it; ``advance`` is called after each request."""
    result = LoadResult(spec)
    numbers = iter(range(spec.num_requests))
    began = time.perf_counter()
    async with _session(spec.api_key, REQUEST_TIMEOUT_S) as session, asyncio.TaskGroup() as clients:
        for _ in range(min(spec.concurrency, spec.num_requests)):
            clients.create_task(_client(session, result, numbers, advance))
    result.duration_s = time.perf_counter() - began
    return result


async def _client(
    session: aiohttp.ClientSession, result: LoadResult, numbers: Iterator[int], advance: Callable[[], None]
) -> None:
    """One client: takes the next number until there is none."""
    for number in numbers:
        try:
            completion = await stream_completion(
                session, f"{result.spec.url}/v1/completions", body(result.spec, number)
            )
        except StreamError as error:
            result.errors[error.kind] += 1
            if len(result.examples) < _EXAMPLES:
                result.examples.append(f"{error.kind}: {error}")
        else:
            result.completions.append(completion)
        advance()


def body(spec: LoadSpec, number: int) -> dict[str, Any]:
    """Request ``number``: models in turn, a prompt that no other request shares, and an answer of fixed length."""
    return {
        "model": spec.models[number % len(spec.models)],
        "prompt": prompt(number, spec.prompt_tokens),
        "max_tokens": spec.max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
    }


def prompt(number: int, num_words: int) -> str:
    """``num_words`` common words, about a token each; the first ones spell ``number``, so no prefix is shared."""
    words = []
    rest = number
    for place in range(num_words):
        words.append(_WORDS[(rest + place) % len(_WORDS)])
        rest //= len(_WORDS)
    return " ".join(words)


def _session(api_key: str | None, timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),  # the number of clients is the limit
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        headers={"authorization": f"Bearer {api_key}"} if api_key else None,
        read_bufsize=_READ_BYTES,
    )

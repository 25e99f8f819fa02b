"""Requests as clients send them, with OpenAI's own client, and what came back of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import openai
from openai import AsyncOpenAI

from tests.e2e.cluster import POLL_S, Cluster, wait_for

API_KEY = "sk-key-that-must-be-in-no-log"
MAX_TOKENS = 40  # of the longest greedy answers
NUM_BEFORE = 4  # tokens that each stream must have before something is done to it
UNDERWAY_S = 90.0  # until they have them, on a busy machine
TRIES = 5  # a node that has both models swaps between them: the answers of one may be over before the other's begin

# Greedy answers to these are the same in every batch: nowhere are two tokens close to a tie.
PROMPTS = [
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):",
    "The recipe for a good bread begins with",
    "A list of the planets: Mercury,",
]


@asynccontextmanager
async def openai_client(cluster: Cluster) -> AsyncIterator[AsyncOpenAI]:
    """The official client, which must not hide a failure by trying again."""
    async with AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key=API_KEY, max_retries=0, timeout=200) as client:
        yield client


@dataclass
class Answer:
    """What a stream has brought so far."""

    text: str = ""
    num_chunks: int = 0
    num_tokens: int | None = None
    """As the server counts them, at the end."""
    finish_reason: str | None = None


@dataclass(frozen=True)
class Ask:
    """A greedy completion of exactly ``max_tokens`` tokens."""

    model: str
    prompt: str
    max_tokens: int
    slo: str = "interactive"
    seed: int = 0
    """Of no effect on a real model, which is asked for the likeliest; a predicted one makes its tokens of it."""


async def stream(client: AsyncOpenAI, ask: Ask, answer: Answer) -> None:
    """Fill ``answer`` as the tokens come."""
    chunks = await client.completions.create(
        model=ask.model,
        prompt=ask.prompt,
        max_tokens=ask.max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "slo": ask.slo, "seed": ask.seed},
    )
    async with chunks:
        async for chunk in chunks:
            answer.num_chunks += 1
            for choice in chunk.choices:
                answer.text += choice.text
                answer.finish_reason = choice.finish_reason or answer.finish_reason
            if chunk.usage is not None:
                answer.num_tokens = chunk.usage.completion_tokens


async def complete(client: AsyncOpenAI, asks: Sequence[Ask]) -> list[Answer]:
    """Ask all at once and wait for all answers."""
    answers = [Answer() for _ in asks]
    await asyncio.gather(*(stream(client, ask, answer) for ask, answer in zip(asks, answers, strict=True)))
    return answers


async def underway(answers: Sequence[Answer], tasks: Sequence[asyncio.Task[None]]) -> None:
    """Until each of these streams has brought something."""
    async with asyncio.timeout(UNDERWAY_S):
        while min(answer.num_chunks for answer in answers) < NUM_BEFORE:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(POLL_S)


@dataclass
class Load:
    """Streams that run and requests that queue behind them."""

    running: list[Ask]
    queued: list[Ask]
    answers: list[Answer] = field(default_factory=list)

    @classmethod
    def on(cls, models: Sequence[str], num_running: int = 3, num_queued: int = 2, max_tokens: int = MAX_TOKENS) -> Load:
        """As many streams as a node runs at once for each model, and some more, partly of another class."""
        running = [Ask(model, prompt, max_tokens) for model in models for prompt in PROMPTS[:num_running]]
        classes = ["interactive", "batch-1"]
        queued = [
            Ask(model, PROMPTS[-1 - number], 16, classes[number % len(classes)])
            for model in models
            for number in range(num_queued)
        ]
        return cls(running, queued)

    async def disturbed(
        self, client: AsyncOpenAI, cluster: Cluster, disturb: Callable[[], Awaitable[None]]
    ) -> list[BaseException | None]:
        """Run everything, and ``disturb`` while each stream is underway; the failures of the streams, None for none."""
        # a model that has to be loaded first would begin when the streams of the others are over
        await complete(
            client, [Ask(model, PROMPTS[0], 1) for model in dict.fromkeys(ask.model for ask in self.running)]
        )
        for _ in range(TRIES):
            tasks: list[asyncio.Task[None]] = []
            try:
                if await self._begin(client, cluster, tasks):
                    await disturb()
                    return await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        raise AssertionError(f"{TRIES} times some answers were over before others had begun")

    async def _begin(self, client: AsyncOpenAI, cluster: Cluster, tasks: list[asyncio.Task[None]]) -> bool:
        """Start everything anew; whether all is underway at the same time, and nothing is over."""
        self.answers = []
        for asks in (self.running, self.queued):
            answers = [Answer() for _ in asks]
            self.answers += answers
            tasks += [
                asyncio.create_task(stream(client, ask, answer)) for ask, answer in zip(asks, answers, strict=True)
            ]
            if asks is self.running:
                await underway(self.answers, tasks)
        await asyncio.to_thread(
            wait_for, "the queue's acceptance", lambda: self._is_accepted(cluster) or self._has_finished()
        )
        return not self._has_finished()

    def _has_finished(self) -> bool:
        return any(answer.finish_reason is not None for answer in self.answers)

    def _is_accepted(self, cluster: Cluster) -> bool:
        return bool(cluster.status("queue-manager")["num_requests"] == len(self.answers))

    def check(self, failures: Sequence[BaseException | None], expected: dict[str, str]) -> None:
        """Every stream has each token exactly once: the undisturbed text, and the exact count."""
        assert [failure for failure in failures if failure] == []
        for ask, answer in zip([*self.running, *self.queued], self.answers, strict=True):
            assert answer.num_tokens == ask.max_tokens, ask
            assert answer.finish_reason == "length"
            assert expected[ask.prompt].startswith(answer.text), (ask, answer.text)
            assert ask.max_tokens < MAX_TOKENS or answer.text == expected[ask.prompt]


def is_broken_stream(failure: BaseException | None) -> bool:
    """Whether a client has been told that its answer is not complete."""
    return isinstance(failure, openai.APIError | OSError) or type(failure).__module__.startswith(("httpx", "httpcore"))

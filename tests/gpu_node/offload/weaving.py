"""Two engines of one process, a sender and a receiver, and what their agents would say to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.engine import Engine
from gpu_node.engine.offload.offloading import LinkNews, PagesBack, RemoteLost
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.named import offload_passes
from shared.config.engine import EngineOptions, ModelSpec
from shared.messages.payload import Payload

LINK = LinkName("hot-1", "cold-1")
MODEL = "tiny"


class Weaving:
    """With a link between them."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        spec: ModelSpec,
        *,
        sender: EngineOptions,
        receiver: EngineOptions,
        num_threads: int = 1,
    ) -> None:
        self.hot, self.cold = (self._engine(stack, folder, spec, one, num_threads) for one in (sender, receiver))
        self.returned: list[int] = []
        self.num_lost = 0
        self.connect()

    @staticmethod
    def _engine(stack: ExitStack, folder: Path, spec: ModelSpec, options: EngineOptions, num_threads: int) -> Engine:
        executor = CpuExecutor(options, num_threads, passes=offload_passes(options.offload), link_folder=folder)
        engine = Engine(stack.enter_context(closing(executor)), options)
        engine.load_model(spec)
        return engine

    def connect(self) -> None:
        self.cold.offload.receive(LINK, self.hot.make_link(LINK, MODEL))

    @property
    def num_served(self) -> int:
        return self.cold.offload.num_served

    def lend(self, num_pages: int, ratio: float) -> list[int]:
        pages = self.cold.offload.lend(LINK, num_pages)
        self.hot.offload.grant(LINK, pages, self.cold.offload.page_bytes)
        self.hot.offload.set_ratio(LINK, ratio)
        return pages

    def want_back(self, num_pages: int) -> None:
        self.hot.offload.want_back(LINK, num_pages)

    def run(self, payloads: Sequence[Payload], happen: Callable[[int], None]) -> list[list[int]]:
        """New tokens of each request; ``happen`` is called ahead of each step of the sender, with its number."""
        outputs: dict[str, list[int]] = {payload.request_id: [] for payload in payloads}
        for payload in payloads:
            assert self.hot.add(payload) == []
        number = 0
        while self.hot.has_work:
            happen(number)
            number += 1
            for chunk in self.hot.step(now=0.0):
                assert not chunk.error
                outputs[chunk.request_id] += chunk.token_ids
            self.take_news()
            self.hot.check()
        return list(outputs.values())

    def take_news(self) -> list[LinkNews]:
        """What the sender's agent hears; pages go back to the receiver."""
        news = list(self.hot.offload.news())
        for one in news:
            if isinstance(one, PagesBack):
                self.cold.offload.take_back(LINK, one.pages)
                self.returned += one.pages
            elif isinstance(one, RemoteLost):
                self.num_lost += one.num_requests
        return news

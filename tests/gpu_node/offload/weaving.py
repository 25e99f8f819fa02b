"""Two engines of one process, a sender and a receiver, and what their agents would say to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from _pytest.mark import ParameterSet

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.engine import Engine
from gpu_node.engine.offload.offloading import LinkNews, PagesBack, RemoteLost
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.named import lane_passes, offload_passes
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from shared.messages.requests.payload import Payload
from tests.gpu_node.random_pipelines import random_pipeline

if TYPE_CHECKING:
    from gpu_node.executors.cuda.executor import CudaExecutor

LINK = LinkName("hot-1", "cold-1")
MODEL = "tiny"
PIPED_ROWS = 4


@dataclass(frozen=True, slots=True)
class Device:
    """What both engines compute with, and how much of a workload it can do in a test."""

    name: str
    num_requests: int
    most_tokens: int
    """Of an output."""
    num_layers: int
    head_dim: int
    """Of 4 KV heads: so large that the sender's memory is filled."""
    num_threads: int = 1
    pipeline: int | None = None
    """Both engines' steps of `PIPED_ROWS` rows and more go through the random pipeline of this seed."""

    def __str__(self) -> str:
        return self.name

    def executor(
        self, options: EngineOptions, folder: Path, meanwhile: Callable[[], object]
    ) -> CpuExecutor | CudaExecutor:
        """Without a model. CUDA devices in float32, by the interpreter: ``meanwhile`` is what the other one does then.

        Threads of a CPU device need nobody.
        """
        passes = offload_passes(options.offload)
        if self.name != "cuda":
            return CpuExecutor(
                options,
                self.num_threads,
                passes=passes,
                lane_passes=lane_passes(options.offload),
                link_folder=folder,
                pipelines=self._pipelines,
            )
        from gpu_node.executors.cuda.executor import CudaExecutor

        return CudaExecutor(
            options,
            torch.device("cpu"),
            dtype=torch.float32,
            passes=passes,
            link_folder=folder,
            meanwhile=meanwhile,
        )

    @property
    def _pipelines(self) -> Pipelines:
        if self.pipeline is None:
            return NO_PIPELINES
        file = random_pipeline(self.pipeline, rows=PIPED_ROWS, device=cpu_name(self.num_threads))
        return Pipelines("any.json", PIPED_ROWS, (file,))


CPU = Device("cpu", num_requests=12, most_tokens=24, num_layers=6, head_dim=64)
PIPED = [
    replace(CPU, name=f"cpu in lanes {seed}", pipeline=seed, num_threads=num_threads)
    for seed, num_threads in ((1, 1), (2, 2), (3, 3))
]
CUDA = Device("cuda", num_requests=6, most_tokens=12, num_layers=2, head_dim=128)

NO_INTERPRETER = os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None


def on_cuda(*values: object) -> ParameterSet:
    """A case of a test that is for a CUDA device, by the interpreter."""
    marks = (pytest.mark.slow, pytest.mark.skipif(NO_INTERPRETER, reason="two devices in one process are interpreted"))
    return pytest.param(CUDA, *values, marks=marks)


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
        device: Device = CPU,
    ) -> None:
        self.hot = engine_of(stack, folder, spec, sender, device, lambda: self.cold.offload.serve())
        self.cold = engine_of(stack, folder, spec, receiver, device, lambda: self.hot.offload.serve())
        self.returned: list[int] = []
        self.num_lost = 0
        self.connect()

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


def engine_of(
    stack: ExitStack,
    folder: Path,
    spec: ModelSpec,
    options: EngineOptions,
    device: Device = CPU,
    meanwhile: Callable[[], object] = bool,
) -> Engine:
    """With the model loaded."""
    executor = stack.enter_context(closing(device.executor(options, folder, meanwhile)))
    engine = Engine(executor, options)
    engine.load_model(spec)
    return engine

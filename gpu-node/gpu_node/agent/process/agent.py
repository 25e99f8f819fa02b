"""A node's life: one epoch after another, each with a fresh engine, until the process is asked to stop."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace

import msgspec
import structlog
from redis.asyncio import Redis

from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.evictions import IMAGE_LINGER_S
from gpu_node.agent.decisions.models.models import ModelRecord
from gpu_node.agent.images.given_images import TOKEN_BYTES, GivenImages, ImageRefusedError
from gpu_node.agent.images.prefix_giver import PrefixGiver
from gpu_node.agent.process.engine_command import engine_command
from gpu_node.agent.process.engine_process import EngineDiedError, EngineProcess
from gpu_node.agent.process.epoch import Epoch, EpochOverError
from gpu_node.agent.process.model_watch import ModelWatch
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError
from shared.messages.prefixes.prefix_sources import KvDoor

MAX_EPOCHS = 5  # epochs that may end within EPOCH_WINDOW_S before the process gives up, so that its supervisor sees it
EPOCH_WINDOW_S = 60.0
LOAD_RETRY_S = 5.0  # until another engine is started where one died while it loaded a model; doubled each further time
MAX_LOAD_RETRY_S = 60.0


_ADVICE = "the log says more; status -9 means that the machine ran out of memory"

log = structlog.get_logger()


class NodeFailedError(OperatorError):
    """The engine dies again and again; restarting it here does not help."""


class Agent:
    """One node: its engine and its current epoch."""

    def __init__(
        self,
        redis: Redis,
        node: NodeSpec,
        options: EngineOptions,
        base_url: str,
        *,
        models: ModelWatch | None = None,
        tells_blocks: bool = False,
        exchanges_prefixes: bool = False,
    ) -> None:
        """``base_url``: how other nodes reach the admin port of this one. ``tells_blocks``: as `Epoch`.

        ``models``: those of the configuration, where they may change. ``exchanges_prefixes``: it reads what other nodes
        have cached of prompts, and they what it has.
        """
        self._redis = redis
        self._models = models
        self._base_url = base_url
        self.given: GivenImages | None = None
        """What waits here to be fetched by other nodes; None before the first epoch."""
        self.giver: PrefixGiver | None = None
        """Of what is cached here, to other nodes; None between two epochs, and where nothing is given."""
        self._tells_blocks = tells_blocks
        # vLLM keeps its cache; of a group, each device has a part of every block; offloaded blocks lie elsewhere
        is_alone = node.engine != "vllm" and node.tensor_parallel == 1 and options.offload == "off"
        self._exchanges_prefixes = exchanges_prefixes and is_alone
        self._node = node.name
        self._device = node.device
        self._phases = node.phases
        self._command = engine_command(node)
        # a vLLM that keeps no KV has no use for an image
        has_images = node.engine != "vllm" or node.keeps_kv
        self._options = options if has_images else replace(options, evicted_kv_bytes=0)
        self._engine: EngineProcess | None = None
        self._core: AgentCore | None = None
        self._model_record = ModelRecord()
        self._failed = ""

    @property
    def not_ready(self) -> str:
        """What is missing before this node serves, or ``""``."""
        if self.failure:
            return self.failure
        if self._core is None:
            return "the engine is starting"
        if self._core.models.loaded is None:
            broken = "; ".join(self._core.models.broken.values())
            return broken or f"loading model {self._core.models.loading or '(none assigned yet)'}"
        return ""

    @property
    def failure(self) -> str:
        """Why the last engine ended while it loaded a model, until one has been loaded."""
        return "" if self._core is not None and self._core.models.loaded is not None else self._failed

    @property
    def core(self) -> AgentCore | None:
        """The decisions of the current epoch; None between two of them."""
        return self._core

    def status(self) -> dict[str, object]:
        """What an operator wants to see of this node."""
        core = self._core
        if core is None:
            return {"node": self._node, "device": self._device, "failed": self.failure, **self._given_status()}
        beat = core.heartbeat()
        values = {name: msgspec.to_builtins(getattr(beat, name)) for name in beat.__struct_fields__}
        del values["traceparent"]
        values["facts"].pop("door", None)  # it has a secret
        return values | {
            "engine": core.report.engine,
            "lacks": core.report.lacks,
            "loading": core.models.loading,
            "broken_models": core.models.broken,
            "adapters": core.models.adapters.loaded(core.model),
            "broken_adapters": core.models.adapters.broken,
            "failed": self.failure,
            "max_model_len": core.models.loaded.max_model_len if core.models.loaded else None,
            "engine_pid": self._engine.pid if self._engine else None,
            **self._given_status(),
        }

    def _given_status(self) -> dict[str, object]:
        """Of what waits to be fetched, also behind the node's goodbye."""
        images = self.given if self.given is not None else ()
        num_bytes = self.given.num_bytes if self.given is not None else 0
        return {"given_images": len(images), "given_image_bytes": num_bytes}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; what is unfinished then goes back to the queue."""
        stopping = asyncio.create_task(stop.wait())
        began: list[float] = []
        num_failures = 0
        try:
            while not stop.is_set():
                now = time.monotonic()
                began = [*(start for start in began if start > now - EPOCH_WINDOW_S), now]
                if len(began) > MAX_EPOCHS:
                    why = f"; {self._failed}" if self._failed else ""
                    raise NodeFailedError(f"{self._node}: {MAX_EPOCHS} epochs ended within {EPOCH_WINDOW_S:.0f} s{why}")
                num_failures = num_failures + 1 if await self._serve_epoch(stopping) else 0
                if num_failures:
                    pause_s = min(LOAD_RETRY_S * 2 ** (num_failures - 1), MAX_LOAD_RETRY_S)
                    log.warning("engine is started again later", pause_s=pause_s, num_failures=num_failures)
                    await asyncio.wait([stopping], timeout=pause_s)
        finally:
            stopping.cancel()

    async def _ask_engine(self, command: CopyPrefix) -> None:
        """For another node; that the engine has died, the epoch notices by itself."""
        assert self._engine is not None, "an epoch has one"
        try:
            await self._engine.send(command)
        except EngineDiedError as error:
            raise ImageRefusedError(404, f"the engine has died: {error}") from error

    async def _serve_epoch(self, stopping: asyncio.Task[bool]) -> bool:
        """One epoch. Whether its engine died while it loaded a model, and had none before."""
        epoch = f"{self._node}-{secrets.token_hex(4)}"
        log.info("epoch begins", epoch=epoch)
        if self._models is not None:
            await self._models.read()  # as the engine does
        self._engine = await EngineProcess.start(self._command)
        door = KvDoor(self._base_url, secrets.token_hex(TOKEN_BYTES)) if self._exchanges_prefixes else None
        self._core = core = AgentCore(
            self._node, epoch, self._device, self._options, self._phases, door, self._model_record
        )
        self.given = given = GivenImages(self._node, epoch, self._base_url)
        self.giver = PrefixGiver(given, door, self._ask_engine) if door is not None else None
        has_failed = False
        linger_s = 0.0
        try:
            tells_blocks, giver = self._tells_blocks, self.giver
            one = Epoch(
                self._redis,
                core,
                self._engine,
                given,
                self._options,
                giver=giver,
                models=self._models,
                tells_blocks=tells_blocks,
            )
            await one.run(stopping)
            linger_s = IMAGE_LINGER_S
        except (EpochOverError, EngineDiedError) as error:
            log.error("epoch over", epoch=epoch, reason=str(error))
            if isinstance(error, EngineDiedError):
                core.models.engine_died()
            has_failed = isinstance(error, EngineDiedError) and bool(core.models.loading) and not core.models.loaded
            if has_failed:
                self._failed = f"model {core.models.loading!r} was not loaded: {error}; {_ADVICE}"
        finally:
            if core.models.loaded is not None:
                self._failed = ""
            self._core = self.giver = None
            await asyncio.gather(self._engine.stop(), _linger(given, linger_s))
        return has_failed


async def _linger(given: GivenImages, linger_s: float) -> None:
    """What was handed over at the end is fetched by others first, as far as there is time."""
    try:
        async with asyncio.timeout(linger_s):
            await given.emptied()
    except TimeoutError:
        log.info("images not fetched", num_images=len(given))
    given.clear()

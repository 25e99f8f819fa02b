"""One model on several processes, each with some heads of every layer and of the same KV blocks.

There is one engine and one block manager, in the process of the first device; the others get each step's plan.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpu_node.engine.border.executor import BlocksStayError, ComputedStep, ModelTooLargeError, PendingStep
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan
from gpu_node.executors.collectives import CollectiveError
from gpu_node.executors.group.group_step import GroupStep, StepWaiter
from gpu_node.executors.group.part import RankSpec
from gpu_node.executors.group.rank_protocol import (
    ComputeStep,
    LoadShard,
    RankGoneError,
    ShardAnswer,
    ToRank,
    UnloadShard,
    receive,
    send,
)
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError

LOAD_TIMEOUT_S = 600.0
"""For another device to read its part of a model."""

STOP_TIMEOUT_S = 10.0
"""For another device to end when its socket is closed; a step may be running."""

EXIT_TIMEOUT_S = 1.0
"""For a device that has closed its connections to be gone, so that its status can be told."""


class RankError(RuntimeError):
    """Another device of the group is gone or has failed: what this one holds is of no use any more."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """Another device."""

    number: int
    process: subprocess.Popen[bytes]
    sock: socket.socket

    def state(self) -> str:
        """For people: whether it runs, and how it ended."""
        status = self.process.poll()
        return f"rank {self.number} (pid {self.process.pid}) " + (
            "runs" if status is None else f"ended with status {status}"
        )


class TensorParallelExecutor:
    """The first device of a group, and the processes of the others."""

    def __init__(self, options: EngineOptions, parts: Sequence[RankSpec]) -> None:
        """Start a process for each part but the first, which is this one's. `RankError` if one does not come up."""
        world = len(parts)
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-group-")
        store = Path(self._folder.name, "store")
        self._ranks = [_start(rank, world, store, parts[rank], options) for rank in range(1, world)]
        self._close = weakref.finalize(self, _close, self._ranks, self._folder)
        try:
            self._group = parts[0].join(0, world, store)
        except CollectiveError as error:
            self.close()
            raise RankError(f"the group did not come up: {self._states()}") from error
        self._own = parts[0].make(options, self._group)
        self.device = f"{world}x {self._own.device}"
        self._waiter = StepWaiter(self._look)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """Of the other devices, in the order of ranks."""
        return [rank.process for rank in self._ranks]

    def close(self) -> None:
        """End the other devices. Several calls are as good as one."""
        if self._close.alive:
            self._close()

    @property
    def tiers(self) -> dict[str, str]:
        """As on this device: all keep the parts of the same models."""
        return self._own.tiers

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Load all parts at the same time: devices that try a step when they load do it together.

        Raises `ModelFileError` or `ModelTooLargeError` where none of them can; then nothing has changed anywhere. What
        only some cannot load is a `RankError`, which ends the engine.
        """
        self._tell(LoadShard(spec, instead_of))
        failure: ModelFileError | ModelTooLargeError | None = None
        try:
            model = self._own.load_model(spec, instead_of)
        except (ModelFileError, ModelTooLargeError) as error:
            failure = error
        except CollectiveError as error:
            raise RankError(f"{spec.name!r} was not loaded: {self._states()}") from error
        errors = [str(failure or ""), *(self._load_error(rank, spec) for rank in self._ranks)]
        if failure is not None and all(errors):
            raise failure
        if any(errors):
            texts = [f"rank {number}: {error}" for number, error in enumerate(errors) if error]
            raise RankError(f"some devices cannot load their parts of {spec.name!r}: {'; '.join(texts)}")
        return model

    def _load_error(self, rank: _Rank, spec: ModelSpec) -> str:
        """Why a device could not load its part; empty if it could."""
        try:
            return receive(rank.sock, ShardAnswer).error
        except (RankGoneError, TimeoutError) as error:
            _wait_briefly(rank.process)
            raise RankError(f"{rank.state()} while it loaded {spec.name!r}: {error}") from error

    def unload_model(self, name: str) -> None:
        """Take all parts of a model off their devices."""
        self._tell(UnloadShard(name))
        self._own.unload_model(name)

    def submit(self, plan: StepPlan) -> PendingStep:
        """Compute one step together. `RankError`, here or from its result, when another device is gone."""
        self._tell(ComputeStep(plan))
        try:
            step = self._own.submit(plan)
        except CollectiveError as error:
            raise RankError(f"a step was not computed: {self._states()}") from error
        return step if isinstance(step, ComputedStep) else GroupStep(step, self._waiter)

    def _look(self) -> None:
        if any(rank.process.poll() is not None for rank in self._ranks):
            self._group.abort()
            raise RankError(f"a step was not computed: {self._states()}")

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Not possible: each device has its own heads' part of every block, and only steps travel to the others."""
        del model, blocks, swapped_out
        raise self._blocks_stay()

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Likewise."""
        del model, blocks, content
        raise self._blocks_stay()

    def _blocks_stay(self) -> BlocksStayError:
        return BlocksStayError(f"each of {len(self._ranks) + 1} devices has a part of every block (tensor_parallel)")

    def _tell(self, message: ToRank) -> None:
        for rank in self._ranks:
            try:
                send(rank.sock, message)
            except (RankGoneError, TimeoutError) as error:
                _wait_briefly(rank.process)
                raise RankError(f"{rank.state()}; it does not take a {type(message).__name__}") from error

    def _states(self) -> str:
        for rank in self._ranks:
            _wait_briefly(rank.process)
        return ", ".join(rank.state() for rank in self._ranks)


def _start(rank: int, world: int, store: Path, part: RankSpec, options: EngineOptions) -> _Rank:
    ours, theirs = socket.socketpair()
    ours.settimeout(LOAD_TIMEOUT_S)
    with theirs:
        command = [sys.executable, "-m", "gpu_node.executors.group.rank", "--fd", str(theirs.fileno())]
        command += ["--parent", str(os.getpid())]
        command += ["--rank", str(rank), "--world", str(world), "--store", str(store)]
        command += ["--part", msgspec.json.encode(part).decode(), "--options", msgspec.json.encode(options).decode()]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: S603 (our own program)
    return _Rank(rank, process, ours)


def _wait_briefly(process: subprocess.Popen[bytes]) -> None:
    """A process whose connections are closed is about to be gone."""
    try:
        process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return


def _close(ranks: list[_Rank], folder: tempfile.TemporaryDirectory[str]) -> None:
    for rank in ranks:
        rank.sock.close()
    for rank in ranks:
        try:
            rank.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            rank.process.kill()
            rank.process.wait()
    folder.cleanup()

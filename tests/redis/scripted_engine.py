"""An engine without a device or a process: each of its steps brings the token of each request that is due."""

from __future__ import annotations

import asyncio
import zlib

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    Command,
    EngineEvent,
    HandOverImages,
    Image,
    ImageOpened,
    LoadModel,
    ModelLoaded,
    ReleaseImages,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import LOST
from gpu_node.engine.requests.image import Kept
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.image_files import laid, read

STEP_S = 0.01
MAX_RUNNING = 6


def token(request_id: str, index: int) -> int:
    """What every engine draws there."""
    return 97 + zlib.crc32(f"{request_id} {index}".encode()) % 26


def text(request_id: str, num_tokens: int) -> str:
    """A whole answer."""
    return "".join(chr(token(request_id, index)) for index in range(num_tokens))


class ScriptedEngine:
    """What `Epoch` asks of an `EngineProcess`."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._running: dict[str, Payload] = {}
        self._num_tokens: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._num_received = 0
        self._num_images = 0
        self._has_model = False

    async def send(self, command: Command) -> None:
        match command:
            case LoadModel(model):
                self._has_model = True
                self._tell(
                    ModelLoaded(model, num_blocks=64, block_size=16, block_bytes=64, max_model_len=512, load_s=0.1)
                )
            case RunAttempt(payload, image):
                self._run(payload, read(image) if image is not None else None)
                if image is not None:
                    self._tell(ImageOpened(image))
            case AbortRequests(request_ids):
                for request_id in request_ids:
                    self._running.pop(request_id, None)
                    self._kept.pop(request_id, None)
            case TakeOut(request_ids):
                gone = [request_id for request_id in request_ids if self._running.pop(request_id, None)]
                self._kept |= {request_id: self._num_tokens[request_id] for request_id in gone}
                kept = [Kept(request_id, self._kept[request_id]) for request_id in gone]
                self._tell(TakenOut(kept, self._stats()))
                return
            case HandOverImages(request_ids):
                for request_id in request_ids:
                    if request_id in self._kept:
                        file = laid(str(self._kept.pop(request_id)).encode())
                        self._num_images += 1
                        self._tell(Image(request_id, self._attempts[request_id], self._num_images, file))
                return
            case ReleaseImages():
                return
            case _:
                raise AssertionError(f"nobody says {command}")
        self._tell(StepReport([], self._stats()))

    async def events(self) -> list[EngineEvent]:
        return [await self._events.get()]

    async def run(self) -> None:
        """Compute, for ever."""
        while True:
            await asyncio.sleep(STEP_S)
            chunks = [self._draw(payload) for payload in list(self._running.values())]
            if chunks:
                self._tell(StepReport(chunks, self._stats()))

    def _run(self, payload: Payload, image: bytes | None) -> None:
        name = payload.request_id
        self._num_received += 1
        if image == b"":
            return self._tell(StepReport([Chunk(name, payload.attempt, 0, [], LOST, is_last=True)], self._stats()))
        known = self._kept.pop(name, 0) or int(image or b"0")
        done = sum(len(output.token_ids) for output in payload.outputs)
        self._running[name], self._num_tokens[name] = payload, max(known, done)
        self._attempts[name] = payload.attempt
        return None

    def _draw(self, payload: Payload) -> Chunk:
        name, index = payload.request_id, self._num_tokens[payload.request_id]
        self._num_tokens[name] += 1
        is_last = index + 1 == payload.sampling.max_tokens
        if is_last:
            del self._running[name]
        reason = "length" if is_last else ""
        return Chunk(name, payload.attempt, index, [token(name, index)], reason, is_last=is_last)

    def _tell(self, event: EngineEvent) -> None:
        self._events.put_nowait(event)

    def _stats(self) -> EngineStats:
        num_running = len(self._running)
        return EngineStats(
            num_running=num_running,
            num_waiting=0,
            num_free_blocks=64,
            num_admittable=MAX_RUNNING - num_running if self._has_model else 0,
            step_s=STEP_S,
            num_received=self._num_received,
        )

"""Requests, steps and a running vLLM that is not there: it writes down what it is asked."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from gpu_node.engine.border.model import LoadedModel
from gpu_node.vllm.words.adapters import CoreAdapter, ReadAdapters, room_for
from gpu_node.vllm.words.border import (
    CoreKept,
    CoreOutput,
    CoreRequest,
    CoreStep,
    ModelRefusedError,
    PicturesRefusedError,
    ReadPrompt,
)
from shared.config.engines.adapters import AdapterRoom, AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec, ModelTask
from shared.messages.requests.payload import Output, Payload, Sampling

EOS = 2
OPTIONS = EngineOptions(max_num_seqs=4, step_tokens=64, host_models=1)


def model(
    name: str = "m", num_blocks: int = 10, adapters: Sequence[str] = (), task: ModelTask = "generate"
) -> LoadedModel:
    """Of 10 blocks with 4 tokens each."""
    cut = name, num_blocks, 4, 256, 32, 100, frozenset({EOS})
    return LoadedModel(
        *cut, kv_layout="two numbers", adapters=tuple(adapters), task=task, takes_pictures=name == "eyes"
    )


def payload(
    request_id: str, prompt: Sequence[int] = (5, 6, 7), max_tokens: int = 4, *, attempt: int = 0, **more: object
) -> Payload:
    """Greedy; ``more`` of its sampling, or ``outputs`` of earlier attempts, ``model``, ``adapter`` and ``due_s``."""
    outputs, due_s = more.pop("outputs", []), more.pop("due_s", 0.0)
    name, adapter = more.pop("model", "m"), more.pop("adapter", "")
    sampling = Sampling(**{"max_tokens": max_tokens, "temperature": 0.0} | more)  # type: ignore[arg-type]
    assert isinstance(outputs, list)
    assert isinstance(due_s, float)
    assert isinstance(name, str)
    assert isinstance(adapter, str)
    had = [Output(list(one)) for one in outputs]
    whose = request_id, attempt, "g", name, list(prompt), sampling, had
    return Payload(*whose, enqueued_s=1000.0, due_s=due_s, adapter=adapter)


def step(
    tokens: dict[str, int], *, last: Sequence[str] = (), begun: Sequence[str] = (), usage: float = 0.5
) -> CoreStep:
    """One token for each of these, by their ids in vLLM."""
    outputs = [CoreOutput(one, [token], is_last=one in last) for one, token in tokens.items()]
    outputs += [CoreOutput(one, [], is_last=True) for one in last if one not in tokens]
    return CoreStep(outputs, usage, begun)


def kept(core_id: str, num_tokens: int, fill: int = 7) -> CoreStep:
    """It has left with so many tokens, in blocks of 4 tokens and 256 bytes."""
    content = bytes([fill]) * (256 * -(-num_tokens // 4))
    return CoreStep([], 0.5, kept={core_id: CoreKept(num_tokens, memoryview(content))})


def row(core_id: str, *numbers: float, cached: int | None = None) -> CoreStep:
    """What a text is to a model that embeds or scores, and its end."""
    content = struct.pack(f"<{len(numbers)}f", *numbers)
    return CoreStep([CoreOutput(core_id, [], is_last=True, num_cached_tokens=cached, row=content)], 0.5)


class WrittenCore:
    """A `gpu_node.vllm.words.border.EngineCore` that runs nothing."""

    def __init__(self, weights_bytes: int = 0, room: AdapterRoom | None = None) -> None:
        self.weights_bytes = weights_bytes
        self.room = room
        self.adapters: tuple[CoreAdapter, ...] = ()
        self.running: list[CoreRequest] = []
        self.leaving: list[str] = []
        self.is_closed = False
        self.is_awake = True

    def read_pictures(self, payload: Payload) -> ReadPrompt:
        """Token 0 stands for an image, which is as many as its width; one of no height cannot be read."""
        pictures = iter(payload.pictures)
        token_ids: list[int] = []
        for token in payload.prompt_token_ids:
            token_ids += [token] if token else [0] * next(pictures).width
        if not all(picture.height for picture in payload.pictures):
            raise PicturesRefusedError("the images cannot be read: one is flat")
        return ReadPrompt(token_ids, tuple(picture.content for picture in payload.pictures))

    def read_adapters(self, spec: ModelSpec) -> ReadAdapters:
        return read(spec)

    def exchange_adapters(self, wanted: Sequence[CoreAdapter]) -> dict[str, str]:
        """One that is called ``odd`` it does not take."""
        assert self.is_awake
        assert {one.adapter for one in self.running} <= {"", *(one.name for one in wanted)}
        assert self.room is not None or not wanted
        names = {one.name: one for one in wanted if one.name != "odd"}
        held = {one.name: one for one in self.adapters if one.name in names}
        self.adapters = tuple((held | {name: one for name, one in names.items() if name not in held}).values())
        return {one.name: "vLLM knows no such module" for one in wanted if one.name == "odd"}

    def add(self, request: CoreRequest) -> None:
        assert self.is_awake
        assert not self.is_closed
        self.running.append(request)

    def abort(self, core_ids: Sequence[str]) -> None:
        assert not self.is_closed
        self.running = [one for one in self.running if one.core_id not in core_ids]

    def keep(self, core_ids: Sequence[str]) -> None:
        self.leaving += core_ids
        self.abort(core_ids)

    def sleep(self) -> None:
        assert self.is_awake
        assert self.running == []
        self.is_awake = False

    def wake(self) -> None:
        assert not self.is_awake
        self.is_awake = True

    def close(self) -> None:
        self.is_closed = True


def adapters(**ranks: int) -> tuple[AdapterSpec, ...]:
    """By name, of these ranks."""
    return tuple(AdapterSpec(name, str(rank)) for name, rank in ranks.items())


def read(spec: ModelSpec) -> ReadAdapters:
    """What ``source`` says of each: its rank; of one that is missing, nothing."""
    there = [one for one in spec.adapters if one.source != "missing"]
    return ReadAdapters(
        tuple(CoreAdapter(one.name, Path(one.name), int(one.source), f", adapter {one.name}") for one in there),
        {one.name: f"{one.name} does not exist" for one in spec.adapters if one not in there},
    )


class Starter:
    """Starts them, but for models that are called ``bad``, and with room for adapters of more than ``max_rank``."""

    def __init__(self, max_rank: int = 512, **weights_bytes: int) -> None:
        self._max_rank = max_rank
        self._weights_bytes = weights_bytes
        self.cores: dict[str, WrittenCore] = {}
        self.num_started = 0
        self.num_awake: list[int] = []
        """When each was started."""

    def __call__(self, spec: ModelSpec) -> tuple[WrittenCore, LoadedModel]:
        if spec.name == "bad":
            raise ModelRefusedError("its architecture is not known")
        room = room_for(spec, read(spec).ranks)
        self.num_started += 1
        if room is not None and room.rank > self._max_rank:
            raise ModelRefusedError(f"no memory for {room.num} adapters of rank {room.rank}")
        self.num_awake.append(sum(core.is_awake and not core.is_closed for core in self.cores.values()))
        core = self.cores[spec.name] = WrittenCore(self._weights_bytes.get(spec.name, 0), room)
        return core, model(spec.name, task=spec.task)

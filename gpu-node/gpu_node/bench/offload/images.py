"""KV of prompts, made before anything is measured: decode alone is (Weaver, ATC'25, §5: one prefills, one decodes)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.bench.offload.load import Prepared
from gpu_node.engine.process.protocol.protocol import (
    HandOverImages,
    Image,
    ImageFile,
    ReleaseImages,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from shared.errors import OperatorError
from shared.messages.requests.payload import Payload

LOOK_S = 0.005
MAX_TRIES = 64  # of some milliseconds each: on a busy machine a short answer is often over before it is asked back


class NoImageError(OperatorError):
    """An answer is so short that no image can be made of its prompt."""


def prepared(ends: Sequence[EngineEnd], payloads: Sequence[Payload]) -> list[Prepared]:
    """Each with its image; the engines share the work. Answers are longer than one token."""
    found: dict[str, Prepared] = {}
    left = [_ask(end, payloads[place :: len(ends)]) for place, end in enumerate(ends)]
    while left:
        for one in list(left):
            try:
                request = next(one)
            except StopIteration:
                left.remove(one)
                continue
            if request is not None:
                found[request.payload.request_id] = request
    return [found[payload.request_id] for payload in payloads]


def _ask(end: EngineEnd, payloads: Sequence[Payload]) -> Iterator[Prepared | None]:
    """One after another, a look at a time: None where there is nothing yet. `NoImageError`."""
    heard: list[object] = []
    end.hear = heard.append
    for payload in payloads:
        for _ in range(MAX_TRIES):
            heard.clear()
            end.send(RunAttempt(payload))
            while not any(isinstance(event, StepReport) and event.chunks for event in heard):
                end.listen(LOOK_S)
                yield None
            end.send(TakeOut([payload.request_id]))
            while not any(isinstance(event, TakenOut) for event in heard):
                end.listen(LOOK_S)
                yield None
            if any(isinstance(event, TakenOut) and event.requests for event in heard):
                break  # else it has ended before it was taken out
        else:
            raise NoImageError(f"request {payload.request_id} always ends before it can be taken out")
        end.send(HandOverImages([payload.request_id]))
        while not any(isinstance(event, Image) for event in heard):
            end.listen(LOOK_S)
            yield None
        image = next(event for event in heard if isinstance(event, Image))
        chunks = [chunk for event in heard if isinstance(event, StepReport) for chunk in event.chunks]
        told = [token for one in chunks if one.request_id == payload.request_id for token in one.token_ids]
        yield Prepared(payload, _own_copy(image.file), tuple(told))
        end.send(ReleaseImages([image.number]))


def _own_copy(file: ImageFile) -> ImageFile:
    """That outlives the engine which wrote it, as long as this process: it is used again and again."""
    fd = os.memfd_create("prepared-image", os.MFD_CLOEXEC)
    with open(file.path, "rb") as source:  # noqa: PTH123 - a link of /proc, which is no path to look at
        num_copied = 0
        while num_copied < file.num_bytes:
            num_copied += os.sendfile(fd, source.fileno(), num_copied, file.num_bytes - num_copied)
    return ImageFile(f"/proc/{os.getpid()}/fd/{fd}", file.num_bytes)

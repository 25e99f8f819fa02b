"""KV of prompts, made before anything is measured: decode alone is (Weaver, ATC'25, §5: one prefills, one decodes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.bench.offload.load import Prepared
from gpu_node.engine.process.protocol import HandOverImages, Image, RunAttempt, StepReport, TakenOut, TakeOut
from shared.messages.payload import Payload


def prepared(ends: Sequence[EngineEnd], payloads: Sequence[Payload], show: Callable[[], None]) -> list[Prepared]:
    """Each with its image, which the engines make in turn; an answer that was over before it was taken out has none."""
    images: dict[str, bytes] = {}
    asked = [_ask(end, payloads[place :: len(ends)]) for place, end in enumerate(ends)]
    left = list(asked)
    while left:
        for one in list(left):
            try:
                request_id, data = next(one)
                if request_id:
                    images[request_id] = data
                    show()
            except StopIteration:
                left.remove(one)
    return [Prepared(payload, images[payload.request_id]) for payload in payloads]


def _ask(end: EngineEnd, payloads: Sequence[Payload]):  # type: ignore[no-untyped-def]
    """One after another, a look at a time."""
    heard: list[object] = []
    end.hear = heard.append
    for payload in payloads:
        end.send(RunAttempt(payload))
        while not any(isinstance(event, StepReport) and event.chunks for event in heard):
            end.listen(0.005)
            yield "", b""
        end.send(TakeOut([payload.request_id]))
        while not any(isinstance(event, TakenOut) for event in heard):
            end.listen(0.005)
            yield "", b""
        end.send(HandOverImages([payload.request_id]))
        while not any(isinstance(event, Image) for event in heard):
            end.listen(0.005)
            yield "", b""
        (image,) = (event for event in heard if isinstance(event, Image))
        heard.clear()
        yield payload.request_id, image.data

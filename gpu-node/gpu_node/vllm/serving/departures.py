"""Requests that leave a running vLLM with their KV and come back with it: what its workers copied, as images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.image import BlockFormat, RequestImage, RequestState, SequenceState
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.vllm.serving.translation import core_id
from gpu_node.vllm.words.border import CoreKept


class Departures:
    """Of one model: which requests were asked to leave, and what came of it."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._awaited: set[str] = set()
        self._kept: dict[str, CoreKept] = {}

    @property
    def are_awaited(self) -> bool:
        """Whether vLLM has yet to tell of any."""
        return bool(self._awaited)

    @property
    def core_ids(self) -> set[str]:
        """All that is known of here, by their ids in vLLM."""
        return self._awaited | self._kept.keys()

    def await_(self, core_ids: Iterable[str]) -> None:
        """vLLM is asked for their KV."""
        self._awaited.update(core_ids)

    def take(self, kept: Mapping[str, CoreKept]) -> None:
        """What it tells of continuations that are here."""
        self._awaited -= kept.keys()
        self._kept.update(kept)

    def forget(self, own_id: str) -> None:
        """It has ended, or is not wanted any more."""
        self._awaited.discard(own_id)
        self._kept.pop(own_id, None)

    def image(self, request: EngineRequest) -> RequestImage | None:
        """All of a request. None where nothing is kept of it, or not of all of its continuations."""
        sequences: list[SequenceState] = []
        contents: list[memoryview] = []
        num_blocks = 0
        for one in request.sequences:
            kept = self._kept.get(core_id(one))
            if kept is None or not kept.num_tokens:
                return None
            num_own = -(-kept.num_tokens // self._model.block_size)
            if len(kept.content) != num_own * self._model.block_bytes:
                return None  # blocks of a kind that images do not know
            sequences.append(_state(one, kept.num_tokens, list(range(num_blocks, num_blocks + num_own))))
            contents.append(kept.content)
            num_blocks += num_own
        state = RequestState(
            request_id=request.request_id,
            attempt=request.payload.attempt,
            format=BlockFormat.of(self._model),
            num_blocks=num_blocks,
            sequences=sequences,
            num_shared_tokens=0,
            is_forked=True,
            hypotheses=request.hypotheses,
            num_cached_tokens=request.num_cached_tokens,
        )
        return RequestImage(state, contents[0] if len(contents) == 1 else memoryview(b"".join(contents)))


def restored(request: EngineRequest, image: RequestImage, model: LoadedModel) -> dict[str, CoreKept]:
    """What each continuation of a request begins with, by their ids in vLLM."""
    return {
        core_id(one): CoreKept(state.num_computed_tokens, _part(image, state, model.block_bytes))
        for one, state in zip(request.sequences, image.state.sequences, strict=True)
    }


def _part(image: RequestImage, state: SequenceState, block_bytes: int) -> memoryview:
    return image.content[state.places[0] * block_bytes : (state.places[-1] + 1) * block_bytes]


def _state(one: Sequence, num_tokens: int, places: list[int]) -> SequenceState:
    return SequenceState(
        choice=one.choice,
        output_token_ids=one.token_ids[one.num_prompt_tokens :],
        num_computed_tokens=num_tokens,
        places=places,
        logprobs=one.logprobs,
        sum_logprobs=one.sum_logprobs,
        continuations=[],
    )

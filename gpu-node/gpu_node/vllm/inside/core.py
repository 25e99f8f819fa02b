"""One running vLLM, and its processes: requests go in as token ids, and each of its steps comes out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np
import structlog

from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.vllm.blocks.transit import KEPT_TOKENS, Transit
from gpu_node.vllm.inside.constrained import asked_output, told_end
from gpu_node.vllm.inside.core_adapters import CoreAdapter
from gpu_node.vllm.inside.draw_state import extra_args
from gpu_node.vllm.inside.picture_reader import PictureReader
from gpu_node.vllm.inside.pooling import pooling_params
from gpu_node.vllm.inside.step_scheduler import KEEP, REPORT
from gpu_node.vllm.installation.guard import forget_openmp, forget_ranks
from gpu_node.vllm.words.border import (
    CoreDiedError,
    CoreEvent,
    CoreKept,
    CoreOutput,
    CoreRequest,
    CoreStep,
    PicturesRefusedError,
    ReadPrompt,
    StepSize,
)
from gpu_node.vllm.words.vllm_names import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineDeadError,
    LoRARequest,
    SamplingParams,
    SyncMPClient,
)
from shared.messages.requests.payload import Payload
from shared.messages.requests.token_logprob import TokenLogprob

CLOSE_TIMEOUT_S = 5.0  # for its processes to end in order; then they are killed
START_S = 3600.0  # its processes have begun no longer ago when it is up
REAP_TIMEOUT_S = 1.0  # until the system says how a process has ended

WEIGHTS_STAY = 1  # vLLM's level of sleep in which weights go to host memory

log = structlog.get_logger()


class VllmCore:
    """As `gpu_node.vllm.words.border.EngineCore`. Two threads tell what it brings, and that it has died."""

    def __init__(
        self,
        client: SyncMPClient,
        model: str,
        weights_bytes: int,
        tell: Callable[[CoreEvent], None],
        transit: Transit | None = None,
        adapters: Iterable[CoreAdapter] = (),
        pictures: PictureReader | None = None,
    ) -> None:
        """``transit``: where KV comes and goes; None where it is computed again. ``adapters``: those of the model.
        ``pictures``: of a model that takes images."""
        self.weights_bytes = weights_bytes
        self._client = client
        self._model = model
        self._transit = transit
        self._adapters = {one.name: LoRARequest(one.name, one.number, str(one.path)) for one in adapters}
        self._pictures = pictures
        self._tell = tell
        self._is_closing = threading.Event()
        self._began_s = time.time() - START_S
        for work in (self._read, self._watch):
            threading.Thread(target=work, name=f"vllm {model}", daemon=True).start()

    def load_adapters(self) -> None:
        """Before the first request: of one that cannot be loaded then, vLLM would die. Raises what vLLM says."""
        for adapter in self._adapters.values():
            self._client.add_lora(adapter)

    def read_pictures(self, payload: Payload) -> ReadPrompt:
        """See `gpu_node.vllm.words.border.EngineCore`."""
        if self._pictures is None:
            raise PicturesRefusedError(f"{self._model!r} takes no images at this node")
        return self._pictures.read(payload)

    def add(self, request: CoreRequest) -> None:
        """Let a continuation run."""
        kept = request.kept
        if kept is not None and (self._transit is None or not self._transit.put(request.core_id, kept.content)):
            log.warning("KV has no room on its way back; it is computed again", model=self._model)
            kept = None
        adapter = self._adapters[request.adapter] if request.adapter else None
        asked = engine_request(request, kept.num_tokens if kept else 0, adapter)
        self._send(lambda: self._client.add_request(asked))

    def abort(self, core_ids: Sequence[str]) -> None:
        """Forget continuations before the next step."""
        self._send(lambda: self._client.abort_requests(list(core_ids)))
        if self._transit is not None:
            self._transit.drop(core_ids)  # which it may not have loaded yet

    def keep(self, core_ids: Sequence[str]) -> None:
        """Let continuations end, and tell what they had computed."""
        assert self._transit is not None
        self._send(lambda: self._client.abort_requests([one + KEEP for one in core_ids]))

    def sleep(self) -> None:
        """Give the device's memory back; weights stay in host memory."""
        self._send(lambda: self._client.sleep(WEIGHTS_STAY))

    def wake(self) -> None:
        """Take it again."""
        self._send(self._client.wake_up)

    def close(self) -> None:
        """End it, with all processes that it has."""
        self._is_closing.set()
        self._client.shutdown(timeout=CLOSE_TIMEOUT_S)
        self._client.outputs_queue.put_nowait(EngineDeadError())  # lets the reader go
        if self._transit is not None:
            self._transit.close()
        forget_openmp(self._began_s)
        forget_ranks(self._began_s)

    def _send(self, send: Callable[[], object]) -> None:
        try:
            send()
        except EngineDeadError:
            log.warning("nothing is heard by a vLLM that has died", model=self._model)  # the watch tells of it

    def _read(self) -> None:
        while True:
            try:
                step = core_step(self._client.get_output(), self._take_kept)
            except Exception as error:  # whatever it is, nothing more comes
                self._die(f"{type(error).__name__}: {error}")
                return
            self._tell(step)

    def _take_kept(self, core_id: str, num_tokens: int) -> CoreKept:
        assert self._transit is not None
        content = self._transit.take(core_id) if num_tokens else b""
        return CoreKept(num_tokens if content else 0, memoryview(content))

    def _watch(self) -> None:
        """vLLM's own watch ends what is left, without telling."""
        processes = self._client.resources.engine_manager.processes
        connection.wait([process.sentinel for process in processes])
        processes[0].join(REAP_TIMEOUT_S)
        self._die(f"its process ended with status {processes[0].exitcode}")

    def _die(self, why: str) -> None:
        if not self._is_closing.is_set():
            self._tell(CoreDiedError(f"the vLLM of model {self._model!r} has died: {why}"))


def engine_request(
    request: CoreRequest, num_kept_tokens: int = 0, adapter: LoRARequest | None = None
) -> EngineCoreRequest:
    """As vLLM's front end would make it; texts are no business of this process.

    ``num_kept_tokens``: of its beginning, KV is there to be loaded. ``adapter``: its name and path are a part of what
    vLLM's prefix cache knows its blocks by.
    """
    is_text = request.task == "generate"
    return EngineCoreRequest(
        request_id=request.core_id,
        prompt_token_ids=list(request.token_ids),
        mm_features=list(request.features) or None,
        sampling_params=_sampling(request, num_kept_tokens) if is_text else None,
        pooling_params=None if is_text else pooling_params(request.task),
        arrival_time=float(request.core_id),  # those due at the same time go by when they came
        lora_request=adapter,
        cache_salt=request.partition or None,
        data_parallel_rank=None,
        priority=request.priority,
    )


def _sampling(request: CoreRequest, num_kept_tokens: int) -> SamplingParams:
    """Of a token that is drawn by Treadle, vLLM only takes the one that is left."""
    extra = extra_args(request)
    if num_kept_tokens:
        extra = (extra or {}) | {"kv_transfer_params": {KEPT_TOKENS: num_kept_tokens}}
    drawing: dict[str, Any] = {"temperature": 0.0}
    if request.own_draw is None:
        drawing = {
            "temperature": request.temperature,
            "top_k": request.top_k,
            "top_p": request.top_p,
            "min_p": request.min_p,
            "presence_penalty": request.presence_penalty,
            "frequency_penalty": request.frequency_penalty,
            "repetition_penalty": request.repetition_penalty,
            "logit_bias": dict(request.logit_bias) or None,
        }
    return SamplingParams(
        max_tokens=request.max_tokens,
        stop_token_ids=list(request.stop_token_ids),
        ignore_eos=True,  # all that ends it is in the list
        logprobs=request.num_top,
        structured_outputs=None if request.constrained is None else asked_output(request.constrained),
        detokenize=False,
        extra_args=extra,
        **drawing,
    )


def core_step(outputs: EngineCoreOutputs, take_kept: Callable[[str, int], CoreKept]) -> CoreStep:
    """What a message of vLLM says, in our words. ``take_kept`` fetches what has left, by its id and tokens."""
    stats = outputs.scheduler_stats
    report = (stats.ec_connector_stats or {}).get(REPORT) if stats is not None else None
    said = [_output(one) for one in outputs.outputs]
    usage = stats.kv_cache_usage if stats is not None else None
    if report is None:
        return CoreStep(said, usage)
    size = StepSize(report["rows"], report["context"], report["attended"], report["seconds"])
    kept = {core_id: take_kept(core_id, num_tokens) for core_id, num_tokens in report["kept"].items()}
    return CoreStep(said, usage, report["begun"], report["preempted"], size if report["rows"] else None, kept)


def _output(one: EngineCoreOutput) -> CoreOutput:
    if one.pooling_output is not None:
        return _row(one)
    is_whole, error = told_end(one.stop_reason)
    return CoreOutput(
        core_id=one.request_id,
        token_ids=one.new_token_ids,
        logprobs=_logprobs(one) if one.new_logprobs is not None else (),
        is_last=one.finish_reason is not None,
        num_cached_tokens=one.prefill_stats.num_cached_tokens if one.prefill_stats is not None else None,
        is_whole=is_whole,
        error=error,
    )


def _row(one: EngineCoreOutput) -> CoreOutput:
    row = one.pooling_output.float().numpy()
    return CoreOutput(
        core_id=one.request_id,
        token_ids=(),
        is_last=True,
        num_cached_tokens=one.prefill_stats.num_cached_tokens if one.prefill_stats is not None else None,
        error="" if np.isfinite(row).all() else NOT_FINITE,
        row=row.astype("<f4").tobytes(),
    )


def _logprobs(one: EngineCoreOutput) -> list[TokenLogprob]:
    """In a row, the drawn token stands before the most likely ones; of those, what a constraint rules out is none."""
    ids, logprobs = one.new_logprobs.logprob_token_ids.tolist(), one.new_logprobs.logprobs.tolist()
    return [
        TokenLogprob(values[0], [top for top in zip(tokens[1:], values[1:], strict=True) if top[1] != -math.inf])
        for tokens, values in zip(ids, logprobs, strict=True)
    ]

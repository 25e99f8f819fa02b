"""The requests that one running vLLM has: what it is asked for them, and what their clients hear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.counts import Counts, looked_up
from gpu_node.engine.requests.beams import Hypothesis, score
from gpu_node.engine.requests.choices import (
    embedding_chunk,
    end_chunks,
    error_chunk,
    ranked_chunks,
    refusal_chunk,
    token_chunk,
)
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.ends import finish_reason
from gpu_node.engine.requests.image import RequestImage
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.batch.limits import refusal
from gpu_node.engine.steps.batch.resumption import resumed
from gpu_node.engine.steps.batch.rows import num_tops
from gpu_node.vllm.serving.departures import Departures, restored
from gpu_node.vllm.serving.forecast import BlockForecast
from gpu_node.vllm.serving.translation import core_id, core_request, lacking
from gpu_node.vllm.words.border import CoreOutput, CoreRequest, CoreStep
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload
from shared.messages.requests.token_logprob import TokenLogprob


@dataclass(frozen=True, slots=True)
class Change:
    """What follows from a command or a step."""

    chunks: list[OutputChunk] = field(default_factory=list)
    begin: list[CoreRequest] = field(default_factory=list)
    """What vLLM is to run."""
    end: list[str] = field(default_factory=list)
    """What it is to forget, by their ids in vLLM."""


class CoreBook:
    """Of one model. What is here, vLLM has; what is not here is forgotten, whatever comes of it yet."""

    def __init__(self, model: LoadedModel, options: EngineOptions, sequence_ids: Iterator[int]) -> None:
        self.model = model
        self.counts = Counts()
        self._options = options
        self._ids = sequence_ids
        self._requests: dict[str, EngineRequest] = {}
        self._sequences: dict[str, tuple[EngineRequest, Sequence]] = {}
        """By their ids in vLLM."""
        self._fresh: set[str] = set()
        """Those that vLLM has computed nothing of yet."""
        self._silent: set[str] = set()
        """Those that have brought no token yet."""
        self._restored: set[str] = set()
        """Those of them that began with KV that had been kept."""
        self.departures = Departures(model)
        self._forecast = BlockForecast(model, options.max_num_seqs)
        self._kv_usage = 0.0
        self._num_added = 0

    @property
    def has_work(self) -> bool:
        """Whether vLLM has any of its requests."""
        return bool(self._requests)

    @property
    def num_waiting(self) -> int:
        """Requests of which nothing is computed yet."""
        return sum(all(core_id(one) in self._fresh for one in request.sequences) for request in self._requests.values())

    @property
    def num_running(self) -> int:
        """All others."""
        return len(self._requests) - self.num_waiting

    @property
    def num_admittable(self) -> int:
        """How many more are predicted to fit."""
        return self._forecast.num_admittable(self._requests.values())

    @property
    def num_free_blocks(self) -> int:
        """As vLLM said with its last step. Of no requests it says nothing any more: then none is held."""
        return round((1.0 - self._kv_usage) * self.model.num_blocks) if self._requests else self.model.num_blocks

    def attempt_of(self, request_id: str) -> int | None:
        """Which attempt of the request is here."""
        request = self._requests.get(request_id)
        return None if request is None else request.payload.attempt

    def add(self, payload: Payload, image: RequestImage | None = None) -> Change:
        """A request that is not here, from an ``image`` of it where there is one.

        What ends at once is told: what can never run, choices that were complete.
        """
        assert payload.request_id not in self._requests
        limits = self._num_added, self._ids, self.model.max_model_len
        request = EngineRequest.of(payload, *limits) if image is None else resumed(image.state, payload, *limits)
        request.first_enqueued_s = payload.enqueued_s
        # whether its constraint can be compiled, vLLM's process says
        if error := refusal(payload, self.model, self._options, grammar_problem="") or lacking(request):
            return Change([refusal_chunk(payload, error)])
        self._num_added += 1
        request.num_top = num_tops(payload.sampling, self.model)
        reasons = [finish_reason(one, payload.sampling, self.model) for one in request.sequences]
        chunks = end_chunks(payload, request.sequences, reasons)
        request.sequences = [one for one, reason in zip(request.sequences, reasons, strict=True) if not reason]
        if not request.sequences:
            return Change(chunks)
        self._requests[payload.request_id] = request
        leader = request.sequences[0]
        self._forecast.typical.on_arrival(leader.num_prompt_tokens, leader.max_len)
        kept = restored(request, image, self.model) if image is not None else {}
        for one in request.sequences:
            self._sequences[core_id(one)] = request, one
            self._fresh.add(core_id(one))
            self._silent.add(core_id(one))
        self._restored.update(kept)
        begin = [core_request(request, one, self.model, kept.get(core_id(one))) for one in request.sequences]
        return Change(chunks, begin=begin)

    def depart(self, request_ids: Iterable[str]) -> list[str]:
        """Those that are to leave with their KV, by their ids in vLLM, which is to be asked for it."""
        leaving = [core_id(one) for request_id in request_ids for one in self._requests[request_id].sequences]
        self.departures.await_(leaving)
        return leaving

    def image(self, request_id: str) -> RequestImage | None:
        """A request as it left; None where nothing of it is kept."""
        return self.departures.image(self._requests[request_id])

    def num_bytes(self, request_id: str) -> int:
        """The most that an image of it takes."""
        tokens = [len(one.token_ids) for one in self._requests[request_id].sequences]
        return sum(-(-num_tokens // self.model.block_size) for num_tokens in tokens) * self.model.block_bytes

    def remove(self, request_id: str) -> Change:
        """Forget a request; unknown ones are ignored."""
        request = self._requests.pop(request_id, None)
        ids = [core_id(one) for one in request.sequences] if request is not None else []
        for one in ids:
            self._forget(one)
        return Change(end=ids)

    def clear(self) -> Change:
        """Forget all."""
        changes = [self.remove(request_id) for request_id in list(self._requests)]
        return Change(end=[one for change in changes for one in change.end])

    def take(self, step: CoreStep) -> Change:
        """What a step brought. What it brings for those that are forgotten is dropped."""
        if step.kv_usage is not None:
            self._kv_usage = step.kv_usage
        self._fresh.difference_update(step.begun)
        self.counts += Counts(num_preemptions=step.num_preempted)
        change = Change()
        for output in step.outputs:
            found = self._sequences.get(output.core_id)
            if found is not None:
                self._take_output(*found, output, change)
        self.departures.take({one: kept for one, kept in step.kept.items() if one in self._sequences})
        return change

    def check(self) -> None:
        """Assert that the books balance."""
        here = {core_id(one) for request in self._requests.values() for one in request.sequences}
        assert here == self._sequences.keys()
        assert self._fresh <= self._silent <= here
        assert self._restored <= here
        assert self.departures.core_ids <= here
        assert all(request.sequences for request in self._requests.values())

    def _take_output(self, request: EngineRequest, one: Sequence, output: CoreOutput, change: Change) -> None:
        own_id = core_id(one)
        if own_id in self._silent and (output.token_ids or output.row):
            self._silent.discard(own_id)
            self._note_found(request, one, output.num_cached_tokens)
        logprobs: AnySequence[TokenLogprob | None] = output.logprobs or [None] * len(output.token_ids)
        if output.error:
            change.chunks.append(error_chunk(request.payload, output.error, one.choice, one.num_output_tokens))
            change.end.extend(self.remove(request.request_id).end)
            return
        if output.row:
            change.chunks.append(embedding_chunk(request, one, output.row))
            self._end(request, one, 1)  # as which it counts
            return
        for place, (token_id, logprob) in enumerate(zip(output.token_ids, logprobs, strict=True), 1):
            one.token_ids.append(token_id)
            is_whole = output.is_whole and place == len(output.token_ids)
            reason = "stop" if is_whole else finish_reason(one, request.sampling, self.model)
            change.chunks.extend(self._told(request, one, logprob, reason))
            if reason:
                self._end(request, one)
                if not output.is_last:
                    change.end.append(own_id)
                return
        if output.is_whole and not request.sampling.is_ranked:  # it was before it could draw
            reasons = ["stop" if other is one else "" for other in request.sequences]
            change.chunks.extend(end_chunks(request.payload, request.sequences, reasons))
            self._end(request, one)
        elif output.is_last:
            error = "vLLM has ended the request before its end; its log says why"
            change.chunks.append(error_chunk(request.payload, error, one.choice, one.num_output_tokens))
            change.end.extend(self.remove(request.request_id).end)

    def _note_found(self, request: EngineRequest, one: Sequence, num_tokens: int | None) -> None:
        """A continuation began with so many tokens that were there. The first of a request tells of its prompt.

        The others may have found what that computed; one that had been kept, its own.
        """
        if core_id(one) in self._restored:
            self.counts += Counts(restored_tokens=num_tokens or 0)
            return
        self.counts += looked_up(len(one.token_ids), num_tokens or 0, is_prompt=not one.num_output_tokens)
        if one.choice == 0:
            request.num_cached_tokens = num_tokens

    def _told(
        self, request: EngineRequest, one: Sequence, logprob: TokenLogprob | None, reason: str
    ) -> list[OutputChunk]:
        """Of the token that came last. Of a ranked request, none is told before its last candidate has ended."""
        if not request.sampling.is_ranked:
            logprobs = [] if logprob is None else [logprob]
            return [token_chunk(request, one, logprobs, one.num_output_tokens - 1, reason)]
        assert logprob is not None, "it is asked for: candidates are ranked by it"
        one.logprobs.append(logprob)
        one.sum_logprobs += logprob.logprob
        if not reason:
            return []
        output = one.token_ids[one.num_prompt_tokens :]
        value = score(one.sum_logprobs, len(output), request.sampling.length_penalty)
        request.hypotheses.append(Hypothesis(value, output, one.logprobs, reason))
        return ranked_chunks(request) if len(request.sequences) == 1 else []

    def _end(self, request: EngineRequest, one: Sequence, num_output_tokens: int | None = None) -> None:
        self._forecast.typical.on_finish(one.num_output_tokens if num_output_tokens is None else num_output_tokens)
        request.sequences.remove(one)
        self._forget(core_id(one))
        if not request.sequences:
            del self._requests[request.request_id]

    def _forget(self, own_id: str) -> None:
        del self._sequences[own_id]
        for group in (self._fresh, self._silent, self._restored):
            group.discard(own_id)
        self.departures.forget(own_id)

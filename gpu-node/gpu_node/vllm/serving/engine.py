"""vLLM as the engine that an agent commands: a running vLLM for each model that stays, and the requests of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gpu_node.engine.evictions.image_store import ImageStore
from gpu_node.engine.measures.cost_learner import NOTHING_KNOWN, KnownCosts
from gpu_node.engine.measures.counts import TierCounts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.memory.block_log import BlockChanges
from gpu_node.engine.requests.choices import error_chunk, lost_chunk, refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import HandedOver, ImageError, Kept, SerialisedImage
from gpu_node.vllm.serving.book import Change
from gpu_node.vllm.serving.core_residents import CoreResident, CoreResidents, Loaded
from gpu_node.vllm.serving.read_pictures import with_read_pictures
from gpu_node.vllm.words.adapters import ReadAdapters
from gpu_node.vllm.words.border import CoreStep, PicturesRefusedError, StartCore
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload


class VllmEngine:
    """As `gpu_node.engine.process.commands.commands.CommandedEngine`.

    Of evicted requests, KV is kept as far as ``evicted_kv_bytes`` go; beyond, vLLM has its cache.

    Which models stay: `gpu_node.vllm.serving.core_residents.CoreResidents`.
    """

    def __init__(
        self,
        start: StartCore,
        options: EngineOptions,
        profiled: KnownCosts = NOTHING_KNOWN,
        evicted_kv_bytes: int = 0,
        sleeping_bytes: float | None = None,
    ) -> None:
        """``profiled`` is what steps of models were found to cost here before. Without ``evicted_kv_bytes``, vLLM is
        never asked for KV. ``sleeping_bytes``: host memory for the weights of models that sleep; None where all that
        stay are awake."""
        self._residents = CoreResidents(start, options, profiled, sleeping_bytes)
        self._num_received = 0
        self._step_s = 0.0
        self._owes_answer = True  # of its cached blocks, to the KV manager
        self._keeps_kv = evicted_kv_bytes > 0
        self._images = ImageStore(evicted_kv_bytes)

    @property
    def tiers(self) -> Mapping[str, str]:
        """Those on the device can serve at once."""
        return self._residents.tiers

    @property
    def has_work(self) -> bool:
        """Whether any vLLM has requests."""
        return any(resident.book.has_work for resident in self._residents)

    @property
    def num_waiting(self) -> int:
        """Requests of which nothing is computed yet."""
        return sum(resident.book.num_waiting for resident in self._residents)

    # --- models come and go -------------------------------------------------------------------------------------------

    def load_model(self, spec: ModelSpec, read: ReadAdapters | None = None) -> Loaded:
        """See `CoreResidents.load`."""
        return self._residents.load(spec, read)

    def reader(self, spec: ModelSpec) -> Callable[[], ReadAdapters] | None:
        """Reads files of adapters that a model that serves is asked to have, in any thread; None where it has these,
        or is to be loaded first."""
        resident = self._residents.serving(spec.name)
        if resident is None or [one.name for one in spec.adapters] == list(resident.book.model.adapters):
            return None
        return partial(resident.core.read_adapters, spec)

    def close(self) -> None:
        """End all."""
        self._residents.close()

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, payload: Payload, image: SerialisedImage | None = None) -> list[OutputChunk]:
        """Let a request run. What ends at once is told.

        A newer attempt replaces an older one; the same attempt again, or an older one, changes nothing. An attempt that
        left with its KV goes on where it was, and so does one that comes with the ``image`` of a node of equal format;
        of another, it ends (`LOST`).
        """
        self._num_received += 1
        resident = self._residents.serving(payload.model)
        if resident is None:
            self._images.drop(payload.request_id)
            loaded = ", ".join(map(repr, self._residents.awake)) or "none"
            return [error_chunk(payload, f"model {payload.model!r} is not loaded here; loaded: {loaded}")]
        present = resident.book.attempt_of(payload.request_id)
        kept = self._images.lot.state(payload.request_id)
        if present is not None and present >= payload.attempt:
            return []
        if kept is not None and kept.attempt > payload.attempt:
            return []
        self._carry_out(resident, resident.book.remove(payload.request_id))
        features: tuple[Any, ...] = ()
        if payload.pictures:
            try:
                payload, features = with_read_pictures(resident.core, payload)
            except PicturesRefusedError as error:
                self._images.drop(payload.request_id)
                return [refusal_chunk(payload, str(error))]
        try:
            state = self._images.find(payload, resident.book.model, image)
        except ImageError as error:
            return [lost_chunk(payload, str(error))]
        if state is not None:
            self._images.count(TierCounts(in_bytes=state.num_bytes, num_restored=1))
        change = resident.book.add(payload, self._images.lot.take(payload.request_id))
        begin = [replace(one, features=features) for one in change.begin] if features else change.begin
        return self._carry_out(resident, replace(change, begin=begin))

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests, and what is kept of them; unknown ones are ignored."""
        ids = list(request_ids)
        for request_id in ids:
            self._images.drop(request_id)
        for resident in self._residents:
            end = [one for request_id in ids for one in resident.book.remove(request_id).end]
            self._carry_out(resident, Change(end=end))

    def reset(self) -> None:
        """Forget all requests, the evicted ones too; the models stay."""
        self._images.lot.clear()
        for resident in self._residents:
            self._carry_out(resident, resident.book.clear())

    def tell_blocks_again(self) -> None:
        """Say again that there is nothing to tell."""
        self._owes_answer = True

    def block_changes(self, most: int) -> BlockChanges:
        """What vLLM has cached it does not say by our names, so the KV manager is told once that nothing is known."""
        del most
        owes_answer, self._owes_answer = self._owes_answer, False
        return BlockChanges("", is_new=owes_answer)

    def begin_eviction(self, request_ids: Iterable[str]) -> None:
        """Ask vLLM for the KV of those that are about to be evicted, as far as there is room; `take` hears of it.

        Texts that are embedded or scored are computed again: to them vLLM gives no KV back.
        """
        if not self._keeps_kv:
            return
        num_bytes = 0
        for resident in self._residents:
            if resident.book.model.gives_rows:
                continue
            here = [one for one in dict.fromkeys(request_ids) if resident.book.attempt_of(one) is not None]
            going = []
            for request_id in here:
                if self._images.lot.has_room(num_bytes + resident.book.num_bytes(request_id)):
                    num_bytes += resident.book.num_bytes(request_id)
                    going.append(request_id)
                else:
                    self._images.count(TierCounts(num_refused=1))
            if going:
                resident.core.keep(resident.book.depart(going))

    @property
    def is_evicting(self) -> bool:
        """Whether vLLM has yet to tell of any that it was asked for."""
        return any(resident.book.departures.are_awaited for resident in self._residents)

    def evict(self, request_ids: Iterable[str]) -> tuple[list[OutputChunk], list[Kept]]:
        """Take requests out, with the KV that `begin_eviction` asked for.

        Of others, only what vLLM's prefix cache happens to keep is found again; so nothing is said to be kept.
        """
        assert not self.is_evicting
        return [], [kept for one in dict.fromkeys(request_ids) if (kept := self._evict(one)) is not None]

    def _evict(self, request_id: str) -> Kept | None:
        resident = self._residents.holding(request_id)
        if resident is None:
            state = self._images.lot.state(request_id)  # it may be out already
            return None if state is None else Kept(request_id, state.kv_tokens)
        image = resident.book.image(request_id)
        self._carry_out(resident, resident.book.remove(request_id))
        if image is None or not self._images.lot.put(image):
            return Kept(request_id, 0)
        self._images.count(TierCounts(out_bytes=image.state.num_bytes))
        return Kept(request_id, image.state.kv_tokens)

    def hand_over(self, request_ids: Iterable[str]) -> list[HandedOver]:
        """Give away what is kept of evicted requests. Those that are back in line, or unknown, are left out."""
        images = []
        for request_id in request_ids:
            handed_over = self._images.hand_over(request_id) if self._residents.holding(request_id) is None else None
            if handed_over is not None:
                images.append(handed_over)
        return images

    def release(self, numbers: Iterable[int]) -> None:
        """The memory of images that were handed over is free."""
        for number in numbers:
            self._images.lot.release(number)

    def _carry_out(self, resident: CoreResident, change: Change) -> list[OutputChunk]:
        if change.end:
            resident.core.abort(change.end)
        for request in change.begin:
            resident.core.add(request)
        return change.chunks

    # --- steps --------------------------------------------------------------------------------------------------------

    def take(self, model: str, step: CoreStep) -> list[OutputChunk]:
        """New tokens and ends of a step. Of a model that has gone, nothing comes any more."""
        resident = self._residents.get(model)
        if resident is None:
            return []
        size = step.size
        if size is not None:
            self._step_s = size.duration_s
            resident.costs.learn(size.num_rows, size.num_context_tokens, size.num_attended_tokens, size.duration_s)
        return self._carry_out(resident, resident.book.take(step))

    def stats(self) -> EngineStats:
        """The state between two steps; blocks, and what can be admitted, are the current model's."""
        residents, current = list(self._residents), self._residents.last
        return EngineStats(
            num_running=sum(resident.book.num_running for resident in residents),
            num_waiting=self.num_waiting,
            num_free_blocks=current.book.num_free_blocks if current else 0,
            num_admittable=current.book.num_admittable if current else 0,
            step_s=self._step_s,
            num_received=self._num_received,
            cost=current.costs.cost if current else None,
            evicted_kv_bytes=self._images.lot.num_bytes,
            counts=sum(
                (resident.book.counts for resident in residents), self._residents.counts_of_gone + self._images.counts
            ),
        )

    def check(self) -> None:
        """Assert that the books balance."""
        self._images.lot.check()
        for resident in self._residents:
            resident.book.check()

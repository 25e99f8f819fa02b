"""vLLM as the engine that an agent commands: a running vLLM for each model that stays, and the requests of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.image_store import ImageStore
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.memory.block_log import BlockChanges
from gpu_node.engine.requests.choices import error_chunk, lost_chunk, refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import HandedOver, ImageError, Kept, SerialisedImage
from gpu_node.vllm.serving.book import Change, CoreBook
from gpu_node.vllm.serving.read_pictures import with_read_pictures
from gpu_node.vllm.words.border import CoreStep, EngineCore, ModelRefusedError, PicturesRefusedError, StartCore
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload


class ModelsBusyError(RuntimeError):
    """A model cannot come while all that could go for it have requests."""


@dataclass(frozen=True, slots=True)
class _Resident:
    """A model that stays, and its requests."""

    core: EngineCore
    book: CoreBook
    costs: CostLearner


class VllmEngine:
    """As `gpu_node.engine.process.commands.commands.CommandedEngine`.

    Of evicted requests, KV is kept as far as ``evicted_kv_bytes`` go; beyond, vLLM has its cache.

    Up to ``host_models`` + 1 models stay; the one that was asked for longest ago goes. It goes when the other has come,
    so a model that cannot be loaded changes nothing. Where they sleep, all but the current one are out of the device's
    memory, and cannot serve; what does not fit ``sleeping_bytes`` ends before another comes.
    """

    def __init__(
        self,
        start: StartCore,
        options: EngineOptions,
        profiled: Mapping[str, StepCost] | None = None,
        evicted_kv_bytes: int = 0,
        sleeping_bytes: float | None = None,
    ) -> None:
        """``profiled`` is what steps of models were found to cost here before. Without ``evicted_kv_bytes``, vLLM is
        never asked for KV. ``sleeping_bytes``: host memory for the weights of models that sleep; None where all that
        stay are awake."""
        self._start = start
        self._options = options
        self._costs = {name: CostLearner(cost) for name, cost in (profiled or {}).items()}
        self._residents: dict[str, _Resident] = {}  # the model that was asked for last is the last
        self._current: str | None = None  # that model, unless it has gone
        self._sleeping_bytes = sleeping_bytes
        self._ids = itertools.count()
        self._num_received = 0
        self._step_s = 0.0
        self._counts_of_gone = Counts()
        self._owes_answer = True  # of its cached blocks, to the KV manager
        self._keeps_kv = evicted_kv_bytes > 0
        self._images = ImageStore(evicted_kv_bytes)

    @property
    def tiers(self) -> Mapping[str, str]:
        """Those on the device can serve at once."""
        return {name: "device" if self._is_awake(name) else "host" for name in self._residents}

    @property
    def has_work(self) -> bool:
        """Whether any vLLM has requests."""
        return any(resident.book.has_work for resident in self._residents.values())

    @property
    def num_waiting(self) -> int:
        """Requests of which nothing is computed yet."""
        return sum(resident.book.num_waiting for resident in self._residents.values())

    # --- models come and go -------------------------------------------------------------------------------------------

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Make a model the current one.

        Raises `ModelsBusyError`, or `gpu_node.vllm.words.border.ModelRefusedError`; then nothing has changed.
        """
        if spec.speculation is not None:
            raise ModelRefusedError(f"model {spec.name!r}: Treadle's engine alone guesses tokens here (speculation)")
        if spec.name not in self._residents:
            self._start_beside(spec)
        elif not self._is_awake(spec.name):
            self._put_to_sleep(spec.name)
            self._residents[spec.name].core.wake()
        resident = self._residents.pop(spec.name)
        self._residents[spec.name] = resident
        self._current = spec.name
        return resident.book.model

    def _start_beside(self, spec: ModelSpec) -> None:
        """Of those that stay, one goes if there are too many."""
        current = self._put_to_sleep(spec.name)
        leaver = self._leaver(spec.name)
        try:
            core, model = self._start(spec)
        except ModelRefusedError:
            if current is not None:
                current.core.wake()
            raise
        costs = self._costs.setdefault(spec.name, CostLearner())
        if leaver is not None:
            self._close(leaver)
        self._residents[spec.name] = _Resident(core, CoreBook(model, self._options, self._ids), costs)

    def _is_awake(self, name: str) -> bool:
        return self._sleeping_bytes is None or name == self._current

    def _put_to_sleep(self, wanted: str) -> _Resident | None:
        """The current one, where they sleep at all and it has room there; `ModelsBusyError` while it has requests."""
        if self._sleeping_bytes is None or self._current is None:
            return None
        if self._residents[self._current].book.has_work:
            raise _busy(wanted, [self._current])
        room_bytes = self._sleeping_bytes
        for name, resident in reversed([one for one in self._residents.items() if one[0] != wanted]):
            if resident.core.weights_bytes > room_bytes:
                self._close(name)
            else:
                room_bytes -= resident.core.weights_bytes
        if self._current is None:
            return None
        current = self._residents[self._current]
        current.core.sleep()
        return current

    def close(self) -> None:
        """End all."""
        for name in list(self._residents):
            self._close(name)

    def _leaver(self, wanted: str) -> str | None:
        """The idle model that was asked for longest ago; None while there is a place."""
        if len(self._residents) <= self._options.host_models:
            return None
        for name, resident in self._residents.items():
            if not resident.book.has_work:
                return name
        raise _busy(wanted, list(self._residents))

    def _close(self, name: str) -> None:
        resident = self._residents.pop(name)
        if name == self._current:
            self._current = None
        self._counts_of_gone += resident.book.counts
        resident.core.close()

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, payload: Payload, image: SerialisedImage | None = None) -> list[OutputChunk]:
        """Let a request run. What ends at once is told.

        A newer attempt replaces an older one; the same attempt again, or an older one, changes nothing. An attempt that
        left with its KV goes on where it was, and so does one that comes with the ``image`` of a node of equal format;
        of another, it ends (`LOST`).
        """
        self._num_received += 1
        resident = self._residents.get(payload.model)
        if resident is None or not self._is_awake(payload.model):
            self._images.drop(payload.request_id)
            loaded = ", ".join(repr(name) for name in self._residents if self._is_awake(name)) or "none"
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
        for resident in self._residents.values():
            end = [one for request_id in ids for one in resident.book.remove(request_id).end]
            self._carry_out(resident, Change(end=end))

    def reset(self) -> None:
        """Forget all requests, the evicted ones too; the models stay."""
        self._images.lot.clear()
        for resident in self._residents.values():
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
        for resident in self._residents.values():
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
        return any(resident.book.departures.are_awaited for resident in self._residents.values())

    def evict(self, request_ids: Iterable[str]) -> tuple[list[OutputChunk], list[Kept]]:
        """Take requests out, with the KV that `begin_eviction` asked for.

        Of others, only what vLLM's prefix cache happens to keep is found again; so nothing is said to be kept.
        """
        assert not self.is_evicting
        return [], [kept for one in dict.fromkeys(request_ids) if (kept := self._evict(one)) is not None]

    def _evict(self, request_id: str) -> Kept | None:
        resident = self._resident_of(request_id)
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
            handed_over = self._images.hand_over(request_id) if self._resident_of(request_id) is None else None
            if handed_over is not None:
                images.append(handed_over)
        return images

    def release(self, numbers: Iterable[int]) -> None:
        """The memory of images that were handed over is free."""
        for number in numbers:
            self._images.lot.release(number)

    def _resident_of(self, request_id: str) -> _Resident | None:
        residents = self._residents.values()
        return next((resident for resident in residents if resident.book.attempt_of(request_id) is not None), None)

    def _carry_out(self, resident: _Resident, change: Change) -> list[OutputChunk]:
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
        residents = list(self._residents.values())
        current = residents[-1] if residents else None
        return EngineStats(
            num_running=sum(resident.book.num_running for resident in residents),
            num_waiting=self.num_waiting,
            num_free_blocks=current.book.num_free_blocks if current else 0,
            num_admittable=current.book.num_admittable if current else 0,
            step_s=self._step_s,
            num_received=self._num_received,
            cost=current.costs.cost if current else None,
            evicted_kv_bytes=self._images.lot.num_bytes,
            counts=sum((resident.book.counts for resident in residents), self._counts_of_gone + self._images.counts),
        )

    def check(self) -> None:
        """Assert that the books balance."""
        self._images.lot.check()
        for resident in self._residents.values():
            resident.book.check()


def _busy(wanted: str, names: list[str]) -> ModelsBusyError:
    have = "has" if len(names) == 1 else "have"
    return ModelsBusyError(
        f"cannot load {wanted!r}: {', '.join(map(repr, names))} {have} sequences; drain or reset first"
    )

"""The engine: one device, the models loaded on it, and the requests that run there, one step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpu_node.engine.border.executor import Executor, PreparesBeside
from gpu_node.engine.border.grammar import Grammar, Grammars
from gpu_node.engine.border.links import LinkName, LinkRefusedError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.sizing import device_paging, host_paging
from gpu_node.engine.evictions.eviction import Eviction
from gpu_node.engine.growing_images import GrowingImages
from gpu_node.engine.in_flight import StepsInFlight
from gpu_node.engine.measures.counts import Counts, SumOfCounts
from gpu_node.engine.measures.device_time import DeviceTime
from gpu_node.engine.measures.kv_costs import KvCostTables
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.measures.step_log import StepLog
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.block_log import BlockChanges
from gpu_node.engine.offload.offloading import Offloading
from gpu_node.engine.offload.page_needs import NO_ROOM, LendableRoom
from gpu_node.engine.prefix_exchange import PrefixExchange
from gpu_node.engine.requests.awaited_grammars import AwaitedGrammars
from gpu_node.engine.requests.choices import error_chunk, lost_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import HandedOver, ImageError, Kept, SerialisedImage
from gpu_node.engine.residents import Residents
from gpu_node.engine.steps.batch.roster import MAX_STEPS_IN_FLIGHT
from gpu_node.engine.steps.scheduler import Scheduler
from gpu_node.engine.take_outs import TakeOuts
from gpu_node.engine.tiers.block_store import BlockStore
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload

WAIT_S = 0.005
"""Between two looks at the store, or at grammars, while all requests wait for them; the agent is heard as often."""


class Engine:
    """Joins bookkeeping and execution; nothing else knows both."""

    def __init__(
        self,
        executor: Executor,
        options: EngineOptions,
        profiled: Mapping[str, StepCost] | None = None,
        step_log: StepLog | None = None,
        store: BlockStore | None = None,
        tables: Mapping[str, KvCostTables] | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        """``profiled`` is what steps of models were found to cost here before; the engine learns from there on.

        ``tables`` are what preemptions of models were found to cost. ``step_log`` hears of each step. ``store`` is the
        tier below host memory; its owner closes it. Without ``grammars``, constrained requests are refused.
        """
        self._awaiting = AwaitedGrammars(grammars)
        self._store = store
        self._executor = executor
        paging = device_paging(options)
        pages = PageArena(paging.num_pages), PageArena(host_paging(options).num_pages)
        self.offload = Offloading(executor, pages[0], paging.page_bytes, options.max_num_seqs)
        self._residents = Residents(executor, options, pages, self.offload, store, profiled or {}, tables or {})
        self._lends = options.offload != "off"
        self._last_served = ""
        self._eviction = Eviction(executor, options.evicted_kv_bytes)
        self.growing = GrowingImages(self._residents, self._eviction, self._awaiting, self._interrupt)
        self._take_outs = TakeOuts(executor, self._residents, self._eviction, self._awaiting, self.growing)
        self.prefixes = PrefixExchange(executor, self._residents, self._eviction, self._interrupt)
        self._steps = StepsInFlight(executor, step_log, store)
        self._is_busy = False  # ever since the last step was submitted
        self._num_ahead = MAX_STEPS_IN_FLIGHT - 1 if options.async_scheduling else 0
        self._num_received = 0
        self._sum_of_counts = SumOfCounts()

    @property
    def model(self) -> LoadedModel | None:
        """The model that was asked for last; None before the first."""
        current = self._residents.current
        return None if current is None else current.model

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do: requests, or steps whose outcome is not taken in yet."""
        return self._steps.has_any or bool(self._awaiting) or any(one.has_work for one in self._schedulers)

    @property
    def device_time(self) -> DeviceTime:
        """How busy the device was."""
        return self._steps.device_time

    @property
    def num_preemptions(self) -> int:
        """How often a request gave way because memory ran out."""
        return self.counts.num_preemptions

    @property
    def counts(self) -> Counts:
        """Since the engine began, those of models that have gone included."""
        served = Counts(num_served_tasks=self.offload.num_served)
        stored = () if self._store is None else (Counts(kept=self._store.counts),)
        return self._sum_of_counts.of(self._residents.counts, self._eviction.counts, served, *stored)

    @property
    def _schedulers(self) -> list[Scheduler]:
        return [resident.scheduler for resident in self._residents]

    @property
    def tiers(self) -> dict[str, str]:
        """Where the weights of models are, ``device`` or ``host``; those of others are on disk."""
        return self._executor.tiers

    # --- models come and go -------------------------------------------------------------------------------------------

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """As `Residents.load`. What steps in flight bring that are waited for, the next `step` or `evict` tells."""
        if self._residents.is_other(spec):
            self._steps.settle()
            self._interrupt()
        return self._residents.load(spec)

    def prepares_beside(self, spec: ModelSpec) -> bool:
        """Whether `prepare` shortens how long requests stand still while this is loaded."""
        return self._residents.is_other(spec) and isinstance(self._executor, PreparesBeside)

    def prepare(self, spec: ModelSpec) -> None:
        """As `PreparesBeside`, in any thread; `load_model` is to follow in the engine's own."""
        assert isinstance(self._executor, PreparesBeside)
        self._residents.check_files(spec)
        self._executor.prepare(spec)

    def make_link(self, link: LinkName, model: str) -> LinkSizes:
        """A link for the requests of a loaded model. Raises `LinkRefusedError`."""
        resident = self._residents.get(model)
        if resident is None:
            raise LinkRefusedError(f"no link {link}: model {model!r} is not loaded here")
        return self.offload.make(link, resident.model, resident.scheduler)

    def tell_blocks_again(self) -> None:
        """As `Residents.tell_blocks_again`."""
        self._residents.tell_blocks_again()

    def block_changes(self, most: int) -> BlockChanges:
        """As `Residents.block_changes`."""
        return self._residents.block_changes(most)

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, payload: Payload, image: SerialisedImage | None = None) -> list[OutputChunk]:
        """Queue a request. What ends at once is told: a request that can never run, choices that were complete already.

        A newer attempt replaces an older one. The same attempt again, or an older one, changes nothing. An attempt that
        was evicted here goes on where it was, and so does one that comes with the ``image`` of another engine: one that
        cannot be used ends the attempt (`LOST`). A constrained request is queued when its grammar is compiled.
        """
        self._num_received += 1
        awaited = self._awaiting.attempt_of(payload.request_id)
        if awaited is not None and awaited >= payload.attempt:
            return []
        self._awaiting.drop(payload.request_id)
        return [] if self._awaiting.put(payload, image) else self._add(payload, image)

    def _add(
        self, payload: Payload, image: SerialisedImage | None, grammar: Grammar | None = None
    ) -> list[OutputChunk]:
        self._is_busy = self._is_busy and self.has_work
        resident = self._residents.get(payload.model)
        if resident is None:
            self._eviction.drop(payload.request_id)
            loaded = ", ".join(map(repr, self._residents.names)) or "none"
            return [error_chunk(payload, f"model {payload.model!r} is not loaded here; loaded: {loaded}")]
        present = resident.scheduler.attempt_of(payload.request_id)
        kept = self._eviction.state(payload.request_id)
        if present is not None and present >= payload.attempt:
            return []
        if kept is not None and kept.attempt > payload.attempt:
            return []
        resident.scheduler.abort(payload.request_id)
        try:
            state = self._eviction.resume(payload, resident.model, image)
        except ImageError as error:
            return [lost_chunk(payload, str(error))]
        chunks = resident.scheduler.add(payload, state, grammar)
        if resident.scheduler.attempt_of(payload.request_id) is None:
            self._eviction.drop(payload.request_id)
        elif self._store is not None and state is None:
            self._store.take_in()
            tokens = resident.scheduler.leading_tokens(payload.request_id)
            self._store.promote(resident.model, payload.request_id, tokens, payload.owner)
        return chunks

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests and free what they hold, or what is kept of them; unknown ones are ignored."""
        for request_id in request_ids:
            for scheduler in self._schedulers:
                scheduler.abort(request_id)
            self._eviction.drop(request_id)
            self._awaiting.drop(request_id)

    def reset(self) -> None:
        """Forget all requests, the evicted ones too; the models stay."""
        for scheduler in self._schedulers:
            scheduler.reset()
        self._eviction.clear()
        self._awaiting.clear()

    def evict(self, request_ids: Iterable[str]) -> tuple[list[OutputChunk], list[Kept]]:
        """Take requests out and keep their state and KV in host memory, as far as it has room.

        Returns what the steps in flight brought before, of all requests, and what is kept of the evicted ones, without
        unknown ones. `add` lets them go on, whatever models were loaded meanwhile.
        """
        chunks = self._steps.collect_all()
        self._interrupt()
        return chunks, self._take_outs.keep(request_ids)

    def _interrupt(self) -> None:
        self._is_busy = False  # what moves take is no gap between steps

    def hand_over(self, request_ids: Iterable[str]) -> list[HandedOver]:
        """As `TakeOuts.hand_over`."""
        return self._take_outs.hand_over(request_ids)

    def release(self, numbers: Iterable[int]) -> None:
        """As `Eviction.release`; images that still grow do not, any more."""
        numbers = list(numbers)
        self.growing.release(numbers)
        self._eviction.release(numbers)

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self, now: float) -> list[OutputChunk]:
        """Plan and submit a step, then take in the oldest that is due; returns new tokens and ends.

        ``now`` in seconds, for the policies. With asynchronous scheduling the step just submitted is due only at the
        next call, or when nothing could be planned behind it: the device computes it while the host takes in the one
        before, tells the agent and plans the next. Where masks cannot come late, a step that draws for constrained
        requests is due at once: they are in every step like others, and the host's work between steps is the price.
        So is a step with guessed tokens, and steps in flight before such a one is expected to pay.
        """
        if self._store is not None:
            self._store.take_in()
        self.offload.look()
        chunks = [*self._steps.take_early(), *self._begin_compiled()]
        if self._steps and any(one.is_worth_waiting for one in self._schedulers):
            chunks += self._steps.collect_all()
        is_submitted = self._submit(now)
        if is_submitted and self._steps.decides_next:
            chunks += self._steps.collect_all()
        elif len(self._steps) > (self._num_ahead if is_submitted else 0):
            chunks += self._steps.collect()
        elif not self._steps and not chunks:
            self._wait()
        return chunks

    def _begin_compiled(self) -> list[OutputChunk]:
        """Queue requests whose grammar is ready; what ends at once is told."""
        return [
            chunk for one in self._awaiting.take_ready() for chunk in self._add(one.payload, one.image, one.grammar)
        ]

    def _wait(self) -> None:
        """All requests wait for something that is no step."""
        if self._store is not None:
            self._store.take_in(WAIT_S)
        else:
            self._awaiting.wait(WAIT_S)

    def _submit(self, now: float) -> bool:
        """A step of the next model in turn that has one to plan; False if none has."""
        names = self._residents.names
        first = names.index(self._last_served) + 1 if self._last_served in names else 0
        for name in names[first:] + names[:first]:
            resident = self._residents.get(name)
            assert resident is not None
            plan = resident.scheduler.schedule(now)
            if not plan.is_empty:
                self._eviction.write_back(resident.model, plan.restores)
                self._steps.submit(resident, plan, follows=self._is_busy)
                self._is_busy = True
                self._last_served = name
                return True
        return False

    def stats(self) -> EngineStats:
        """The state between two steps; blocks, and what can be admitted, are the current model's."""
        resident = self._residents.current
        current = resident.scheduler if resident else None
        room = self._lendable_room()
        return EngineStats(
            num_running=sum(scheduler.num_running for scheduler in self._schedulers),
            num_waiting=sum(one.num_waiting for one in self._schedulers) + len(self._awaiting),
            num_free_blocks=current.blocks.num_free_blocks if current else 0,
            num_admittable=current.num_admittable if current else 0,
            step_s=self._steps.step_s,
            num_received=self._num_received,
            kv_bytes_per_s=self._eviction.kv_bytes_per_s,
            cost=resident.costs.step_cost if resident else None,
            decode=current.decode_yield if current else None,
            swapped_kv_bytes=sum(one.swapped_kv_bytes for one in self._residents),
            evicted_kv_bytes=self._eviction.num_bytes,
            host_kept_bytes=sum(one.host_kept_bytes for one in self._residents),
            store_bytes=self._store.used_bytes if self._store is not None else 0,
            page_bytes=room.page_bytes,
            num_spare_pages=room.num_spare,
            num_missing_pages=room.num_missing,
            busy_s=self.device_time.busy_s,
            served_s=self.device_time.served_s,
            waited_s=self.device_time.waited_s,
            counts=self.counts,
            num_remote_blocks=current.residences.num_blocks if current else 0,
        )

    def _lendable_room(self) -> LendableRoom:
        if not self._lends or self._residents.current is None:
            return NO_ROOM
        return self.offload.room(resident.page_need for resident in self._residents)

    def check(self) -> None:
        """Assert that the books balance."""
        for scheduler in self._schedulers:
            scheduler.check()
            assert all(self._eviction.state(one) for one in scheduler.parked), "an image is kept until it is restored"
        self._eviction.check()
        if self._store is not None:
            self._store.check()

"""The models that are loaded: which comes, which goes for it, and what memory each has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpu_node.engine.border.executor import BlocksLostError, Executor, LateMasks
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.move_rates import measured_rates
from gpu_node.engine.loaded_files import LoadedFiles
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.counts import Counts, KeptCounts, SumOfCounts
from gpu_node.engine.measures.kv_costs import KvCosts, KvCostTables
from gpu_node.engine.memory.arena import ArenaFullError, PageArena
from gpu_node.engine.memory.block_log import BlockChanges, FoundBlocks
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.offload.offloading import Offloading
from gpu_node.engine.offload.page_needs import KEPT_REQUESTS, SPARED_REQUESTS, PageNeed
from gpu_node.engine.steps.scheduler import Scheduler
from gpu_node.engine.tiers.block_store import BlockStore
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.memory.tiers import Tier
from shared.messages.nodes.step_cost import StepCost


class EngineBusyError(RuntimeError):
    """A model cannot be loaded while those that would have to go for it have sequences."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model and its requests."""

    spec: ModelSpec
    model: LoadedModel
    scheduler: Scheduler
    costs: KvCosts
    files: LoadedFiles
    _sum_of_counts: SumOfCounts = field(default_factory=SumOfCounts)

    @property
    def counts(self) -> Counts:
        """With what its blocks have counted."""
        blocks = self.scheduler.blocks
        kept = KeptCounts(num_lost_blocks=blocks.host.num_lost, num_late=blocks.arrivals.num_late)
        lost = Counts(kept=kept, num_lost_remote=self.scheduler.residences.num_lost)
        return self._sum_of_counts.of(self.scheduler.counts, lost)

    @property
    def page_need(self) -> PageNeed:
        """Of the device's pages: what it has, and what its requests and typical ones more will take."""
        num_kept, num_spared = self.scheduler.num_expected_blocks(KEPT_REQUESTS, SPARED_REQUESTS)
        return PageNeed(
            num_taken=self.scheduler.blocks.num_taken_pages,
            num_kept=-(-num_kept // self.model.blocks_per_page),
            num_spared=-(-num_spared // self.model.blocks_per_page),
        )

    @property
    def swapped_kv_bytes(self) -> int:
        """Of requests that gave way, in host memory."""
        return self.scheduler.blocks.num_used_host_blocks * self.model.block_bytes

    @property
    def host_kept_bytes(self) -> int:
        """Of what may be asked for again, in host memory."""
        return self.scheduler.blocks.host.num_cached_blocks * self.model.block_bytes


class Residents:
    """Owns them. The model that was asked for last is the last, and the current one."""

    def __init__(
        self,
        executor: Executor,
        options: EngineOptions,
        pages: tuple[PageArena, PageArena],
        offload: Offloading,
        store: BlockStore | None,
        profiled: Mapping[str, StepCost],
        tables: Mapping[str, KvCostTables],
    ) -> None:
        """``pages``: the device's and the host's. ``profiled``, ``tables``: what is known of models' costs before."""
        self._executor = executor
        self._options = options
        self._device_pages, self._host_pages = pages
        self._offload = offload
        self._store = store
        self._tables = tables
        self._costs = {name: self._learner(cost) for name, cost in profiled.items()}
        self._by_name: dict[str, Resident] = {}
        self._left: list[str] = []  # models of whose blocks it is to be told that there are none any more
        self._counts_of_gone = Counts()
        self._sum_of_counts = SumOfCounts()

    @property
    def counts(self) -> Counts:
        """Of all, and of those that have left."""
        return self._sum_of_counts.of(self._counts_of_gone, *(resident.counts for resident in self))

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._by_name.values())

    @property
    def names(self) -> list[str]:
        """The one that was asked for last is the last."""
        return list(self._by_name)

    @property
    def current(self) -> Resident | None:
        """None before the first."""
        return next(reversed(self._by_name.values()), None)

    def get(self, name: str) -> Resident | None:
        """None for a model that is not loaded."""
        return self._by_name.get(name)

    def load(self, spec: ModelSpec) -> LoadedModel:
        """Make a model the current one. Others stay while there are places and memory for all.

        The one that was asked for longest ago goes first, with its cached prefixes; a model with sequences never goes:
        `EngineBusyError` when only such are left. One that is here with other adapters is loaded in place of itself:
        its requests and their KV stay, and no step of it may be in flight. Raises `ModelFileError` or
        `ModelTooLargeError` when the model cannot be used; then nothing has changed.
        """
        resident = self._by_name.get(spec.name)
        if resident is None:
            resident = self._load(spec)
        elif self.is_other(spec):
            resident = self._renewed(resident, spec)
        self._by_name.pop(spec.name, None)
        self._by_name[spec.name] = resident
        return resident.model

    def is_other(self, spec: ModelSpec) -> bool:
        """Whether the model is loaded, with other adapters."""
        resident = self._by_name.get(spec.name)
        return resident is not None and resident.spec.adapters != spec.adapters

    def check_files(self, spec: ModelSpec) -> None:
        """As `LoadedFiles.check`, of a model that is loaded; in any thread."""
        resident = self._by_name.get(spec.name)
        if resident is not None:
            resident.files.check(spec)

    # --- what is cached where -----------------------------------------------------------------------------------------

    def tell_blocks_again(self) -> None:
        """From the next `block_changes` on, all that is cached is told anew."""
        for resident in self:
            resident.scheduler.blocks.log.renew()
        if not self._by_name:
            self._left.append("")

    def block_changes(self, most: int) -> BlockChanges:
        """At most so many changes of cached blocks that have not been told, of one model."""
        if self._left:
            model = self._left.pop(0)
            return BlockChanges(model, is_new=True, has_more=self._has_block_news)
        for name, resident in self._by_name.items():
            log = resident.scheduler.blocks.log
            if log.has_more:
                changes = log.take(name, self._found(resident), most)
                return replace(changes, has_more=self._has_block_news)
        return BlockChanges(self.current.model.name if self.current else "")

    @property
    def _has_block_news(self) -> bool:
        return bool(self._left) or any(resident.scheduler.blocks.log.has_more for resident in self)

    def _found(self, resident: Resident) -> FoundBlocks:
        yield from resident.scheduler.blocks.found()
        if self._store is not None:
            yield from ((Tier.SSD, digest) for digest in self._store.found(resident.model))

    # --- which model goes for which -----------------------------------------------------------------------------------

    def _load(self, spec: ModelSpec) -> Resident:
        is_full = len(self._by_name) == self._options.max_models
        leaver = self._first_idle(spec.name) if is_full else None
        if leaver is not None:
            self._leave_store(leaver)
        try:
            model = self._executor.load_model(spec, leaver)
        except BaseException as error:
            if leaver is not None:
                self._join_store(self._by_name[leaver].model, self._by_name[leaver].scheduler.blocks)
            if isinstance(error, BlocksLostError):
                for resident in self:
                    resident.scheduler.blocks.forget_cached()
            raise
        if leaver is not None:
            self._close(leaver)
        try:
            blocks = self._blocks_for(model)
        except EngineBusyError:
            self._executor.unload_model(spec.name)
            raise
        self._join_store(model, blocks)
        costs = self._kv_costs(model)
        return Resident(spec, model, self._scheduler(model, blocks, costs), costs, LoadedFiles(model))

    def _renewed(self, resident: Resident, spec: ModelSpec) -> Resident:
        """With other adapters. Blocks stay where they are: each is named by the adapter that has computed it."""
        missing = resident.scheduler.adapters - {one.name for one in spec.adapters}
        if missing:
            raise EngineBusyError(f"requests of {spec.name!r} are for {', '.join(sorted(missing))}, which would leave")
        self.check_files(spec)
        self._offload.leave(spec.name)  # what is to be sent is made anew; sequences there are computed again
        self._leave_store(spec.name)
        blocks = resident.scheduler.blocks
        try:
            model = self._executor.load_model(spec, spec.name)
        except BaseException:
            self._join_store(resident.model, blocks)
            raise
        resident.files.learn(model)
        resident.scheduler.renew(model)
        blocks.renew(model)
        self._join_store(model, blocks)
        return replace(resident, spec=spec, model=model)

    def _scheduler(self, model: LoadedModel, blocks: BlockManager, costs: KvCosts) -> Scheduler:
        has_late_masks = isinstance(self._executor, LateMasks)
        return Scheduler(model, self._options, blocks=blocks, costs=costs, has_late_masks=has_late_masks)

    def _kv_costs(self, model: LoadedModel) -> KvCosts:
        """Learnt of a model before, or measured now: its blocks hold nothing yet."""
        learner = self._costs.setdefault(model.name, self._learner())
        rates = measured_rates(self._executor, model) if self._options.preemption == "adaptive" else None
        return KvCosts(self._options, model.block_bytes, learner, rates, self._tables.get(model.name))

    def _learner(self, prior: StepCost | None = None) -> CostLearner:
        return CostLearner(prior, has_remote=self._options.offload != "off")

    def _blocks_for(self, model: LoadedModel) -> BlockManager:
        """Room for a new model, at the cost of idle ones."""
        while True:
            try:
                return BlockManager(
                    model,
                    self._device_pages,
                    self._host_pages,
                    caches_in_host=self._options.tiers.host_bytes > 0,
                    has_store=self._store is not None,
                    swap_copies=self._options.swap_copies,
                )
            except ArenaFullError:
                if self._offload.take_for(model.name):
                    continue
                # what idle models have a right to may be enough
                leaver = self._first_idle(model.name)
            self._leave_store(leaver)
            self._close(leaver)
            self._executor.unload_model(leaver)

    def _first_idle(self, wanted: str) -> str:
        """The idle model that was asked for longest ago."""
        for name, resident in self._by_name.items():
            if not resident.scheduler.has_work:
                return name
        busy = ", ".join(map(repr, self._by_name))
        have = "has" if len(self._by_name) == 1 else "have"
        raise EngineBusyError(f"cannot load {wanted!r}: {busy} {have} sequences; drain or reset first")

    def _close(self, name: str) -> None:
        """Steps of aborted requests may still be in flight: nothing comes of them any more."""
        self._offload.leave(name)
        resident = self._by_name.pop(name)
        self._counts_of_gone += resident.counts
        resident.scheduler.blocks.close()
        self._left.append(name)

    def _join_store(self, model: LoadedModel, blocks: BlockManager) -> None:
        if self._store is not None:
            self._store.join(model, blocks)

    def _leave_store(self, name: str) -> None:
        if self._store is not None:
            self._store.leave(name)

"""The models that stay in a node with vLLM, a running vLLM each: they come, go, sleep, and take other adapters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.cost_learner import CostLearner, KnownCosts
from gpu_node.engine.measures.counts import Counts
from gpu_node.vllm.serving.book import CoreBook
from gpu_node.vllm.words.adapters import ReadAdapters, room_for, want_of_room
from gpu_node.vllm.words.border import EngineCore, ModelRefusedError, StartCore
from shared.config.engines.adapters import AdapterRoom
from shared.config.engines.engine import EngineOptions, ModelSpec


class ModelsBusyError(RuntimeError):
    """A model cannot come while all that could go for it have requests."""


@dataclass(slots=True)
class CoreResident:
    """A model that stays, and its requests."""

    core: EngineCore
    book: CoreBook
    costs: CostLearner
    refused_rooms: dict[AdapterRoom | None, str] = field(default_factory=dict)
    """For adapters, with which vLLM did not start, and why: it is not tried again."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that has become the current one."""

    model: LoadedModel
    broken_adapters: Mapping[str, str]
    """By name, why it is served without them."""
    late_adapters: Mapping[str, str]
    """By name, why it can have them only when it has no requests."""
    rest: ReadAdapters | None = None
    """What it has not taken yet of what was read; None where that is all."""


class CoreResidents:
    """Up to ``host_models`` + 1 models stay; the one that was asked for longest ago goes. It goes when the other has
    come, so a model that cannot be loaded changes nothing. Where they sleep, all but the current one are out of the
    device's memory, and cannot serve; what does not fit ``sleeping_bytes`` ends before another comes.
    """

    def __init__(
        self,
        start: StartCore,
        options: EngineOptions,
        profiled: KnownCosts,
        sleeping_bytes: float | None,
    ) -> None:
        """As `gpu_node.vllm.serving.engine.VllmEngine`."""
        self._start = start
        self._options = options
        self._profiled = profiled
        self._costs: dict[str, CostLearner] = {}
        self._by_name: dict[str, CoreResident] = {}  # the model that was asked for last is the last
        self._current: str | None = None  # that model, unless it has gone
        self._sleeping_bytes = sleeping_bytes
        self._ids = itertools.count()
        self.counts_of_gone = Counts()

    def __iter__(self) -> Iterator[CoreResident]:
        return iter(self._by_name.values())

    @property
    def last(self) -> CoreResident | None:
        """The model that was asked for last."""
        return next(reversed(self._by_name.values()), None)

    @property
    def awake(self) -> list[str]:
        """Those that serve."""
        return [name for name in self._by_name if self._is_awake(name)]

    @property
    def tiers(self) -> dict[str, str]:
        """Those on the device can serve at once."""
        return {name: "device" if self._is_awake(name) else "host" for name in self._by_name}

    def get(self, name: str) -> CoreResident | None:
        """None for a model that has gone."""
        return self._by_name.get(name)

    def serving(self, name: str) -> CoreResident | None:
        """None for a model that has gone, or sleeps."""
        return self._by_name.get(name) if self._is_awake(name) else None

    def holding(self, request_id: str) -> CoreResident | None:
        """The model that has the request."""
        return next((resident for resident in self if resident.book.attempt_of(request_id) is not None), None)

    def load(self, spec: ModelSpec, read: ReadAdapters | None = None) -> Loaded:
        """Make a model the current one, with the adapters of ``spec``; with the first that it has not, where their
        files have been ``read`` for a model that serves, which gets the others by and by.

        Raises `ModelsBusyError`, or `gpu_node.vllm.words.border.ModelRefusedError`; then nothing has changed.
        """
        if spec.speculation is not None:
            raise ModelRefusedError(f"model {spec.name!r}: Treadle's engine alone guesses tokens here (speculation)")
        if spec.name not in self._by_name:
            self._start_beside(spec)
        elif not self._is_awake(spec.name):
            self._put_to_sleep(spec.name)
            self._by_name[spec.name].core.wake()
        resident = self._by_name.pop(spec.name)
        self._by_name[spec.name] = resident
        self._current = spec.name
        if read is not None:
            return self._exchange(spec, resident, read)
        loaded = self._exchange(spec, resident, resident.core.read_adapters(spec))
        while loaded.rest is not None:
            loaded = self._exchange(spec, self._by_name[spec.name], loaded.rest)
        return loaded

    def close(self) -> None:
        """End all."""
        for name in list(self._by_name):
            self._close(name)

    def _exchange(self, spec: ModelSpec, resident: CoreResident, read: ReadAdapters) -> Loaded:
        """What has room is exchanged under the model's requests; for the rest it begins anew, if it has none.

        An adapter that requests are for stays, whatever ``spec`` says.
        """
        late = {one.name: want for one in read.found if (want := want_of_room(resident.core.room, one))}
        problems = dict(read.problems)
        refused = resident.refused_rooms.get(room_for(spec, read.ranks))
        if late and refused is None and not resident.book.has_work:
            try:
                resident, late = self._begun_anew(spec, resident, read), {}
            except ModelRefusedError as error:
                refused = str(error)
        if refused is not None:
            problems, late = problems | dict.fromkeys(late, refused), {}
        core, book = resident.core, resident.book
        kept = {one.name: one for one in core.adapters if one.name in book.adapters}
        wanted = {one.name: one for one in read.found if not want_of_room(core.room, one)} | kept
        held = {one.name for one in core.adapters}
        _, *others = [one for one in wanted if one not in held] or [""]
        refusals = core.exchange_adapters([one for one in wanted.values() if one.name not in others])
        has = core.adapters
        book.model = replace(
            book.model, adapters=tuple(one.name for one in has), adapter_layouts=tuple(one.layout for one in has)
        )
        if not others:
            return Loaded(book.model, problems | refusals, late)
        left = tuple(one for one in read.found if one.name not in refusals)
        return Loaded(book.model, problems, late, rest=ReadAdapters(left, read.problems | refusals))

    def _begun_anew(self, spec: ModelSpec, resident: CoreResident, read: ReadAdapters) -> CoreResident:
        """A model without requests, with room for all of its adapters. As when it comes for the first time, the old one
        sleeps, or stays beside it, until the new one is there."""
        self._put_to_sleep(spec.name)
        try:
            core, model = self._start(spec)
        except ModelRefusedError as error:
            resident.refused_rooms[room_for(spec, read.ranks)] = str(error)
            if self._sleeping_bytes is not None:
                resident.core.wake()
            raise
        resident.core.close()
        self.counts_of_gone += resident.book.counts
        new = CoreResident(core, CoreBook(model, self._options, self._ids), resident.costs)
        self._by_name[spec.name] = new
        return new

    def _start_beside(self, spec: ModelSpec) -> None:
        """Of those that stay, one goes if there are too many."""
        current = self._put_to_sleep(spec.name)
        leaver = self._leaver(spec.name)
        refused_rooms: dict[AdapterRoom | None, str] = {}
        try:
            core, model = self._started(spec, refused_rooms)
        except ModelRefusedError:
            if current is not None:
                current.core.wake()
            raise
        costs = self._costs.get(spec.name) or CostLearner(self._profiled.get(spec.name))
        self._costs[spec.name] = costs
        if leaver is not None:
            self._close(leaver)
        self._by_name[spec.name] = CoreResident(core, CoreBook(model, self._options, self._ids), costs, refused_rooms)

    def _started(self, spec: ModelSpec, refused_rooms: dict[AdapterRoom | None, str]) -> tuple[EngineCore, LoadedModel]:
        """With room for its adapters; where it does not start so, without them, and ``refused_rooms`` says why."""
        try:
            return self._start(spec)
        except ModelRefusedError as error:
            if not spec.adapters:
                raise
            try:
                core, model = self._start(replace(spec, adapters=()))
            except ModelRefusedError:
                raise error from None
            refused_rooms[room_for(spec, core.read_adapters(spec).ranks)] = str(error)
            return core, model

    def _is_awake(self, name: str) -> bool:
        return name in self._by_name and (self._sleeping_bytes is None or name == self._current)

    def _put_to_sleep(self, wanted: str) -> CoreResident | None:
        """The current one, where they sleep at all and it has room there; `ModelsBusyError` while it has requests."""
        if self._sleeping_bytes is None or self._current is None:
            return None
        if self._by_name[self._current].book.has_work:
            raise _busy(wanted, [self._current])
        room_bytes = self._sleeping_bytes
        for name, resident in reversed([one for one in self._by_name.items() if one[0] != wanted]):
            if resident.core.weights_bytes > room_bytes:
                self._close(name)
            else:
                room_bytes -= resident.core.weights_bytes
        if self._current is None:
            return None
        current = self._by_name[self._current]
        current.core.sleep()
        return current

    def _leaver(self, wanted: str) -> str | None:
        """The idle model that was asked for longest ago; None while there is a place."""
        if len(self._by_name) <= self._options.host_models:
            return None
        for name, resident in self._by_name.items():
            if not resident.book.has_work:
                return name
        raise _busy(wanted, list(self._by_name))

    def _close(self, name: str) -> None:
        resident = self._by_name.pop(name)
        if name == self._current:
            self._current = None
        self.counts_of_gone += resident.book.counts
        resident.core.close()


def _busy(wanted: str, names: list[str]) -> ModelsBusyError:
    have = "has" if len(names) == 1 else "have"
    return ModelsBusyError(
        f"cannot load {wanted!r}: {', '.join(map(repr, names))} {have} sequences; drain or reset first"
    )

"""A service: the live core, driven as `shared.service.driver` and `shared.service.log.commit_log` do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from shared.messages.message import Message, Tick
from shared.messages.nodes.placement import PlacementProblem, Plan, Solved
from shared.service.core import Core, Effect, Send, Solve
from shared.service.driver import BACKOFF_S
from shared.service.log.cluster_clock import ClusterClock
from shared.service.log.commit_log import MAX_BATCH_ENTRIES
from shared.service.log.lease import LEASE_S, RENEW_S
from tests.schedules.agenda import sleep, wait
from tests.schedules.keyspace import NO_ID, EntryId
from tests.schedules.process import Process, World
from tests.schedules.redis_model import FencedError, RedisAwayError

C = TypeVar("C", bound=Core)

MAX_SOLVE_S = 1.0


@dataclass(slots=True)
class Term(Generic[C]):
    """One term as active instance."""

    core: C
    holder: str
    last_id: EntryId
    clock: ClusterClock
    committed: EntryId = NO_ID
    is_replaying: bool = True
    num_since_snapshot: int = 0
    tick_sent: bool = False


class ServiceProcess(Process, Generic[C]):
    """One instance; two of a service stand by for each other."""

    def __init__(
        self,
        world: World,
        service: str,
        inbox: str,
        instance: str,
        make_core: Callable[[], C],
        *,
        snapshot_every: int,
        look: Callable[[C], None] = lambda _: None,
        solve: Callable[[PlacementProblem], Plan] | None = None,
    ) -> None:
        super().__init__(world, instance)
        self._service = service
        self._inbox = inbox
        self._make_core = make_core
        self._snapshot_every = snapshot_every
        self._look = look
        self._solve = solve
        self.term: Term[C] | None = None
        self._sign, self._seen_at_s = "", 0.0

    @property
    def core(self) -> C | None:
        """While this instance leads."""
        return self.term.core if self.term is not None and self.is_alive else None

    def begin(self) -> None:
        """One loop."""
        self.term = None
        self._sign = ""
        self.spawn(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._serve()
            except FencedError:
                self.note("is fenced")
                self.term = None
            except RedisAwayError:
                self.term = None
                await sleep(BACKOFF_S)

    async def _serve(self) -> None:
        is_over = self.agenda.now - self._seen_at_s >= LEASE_S
        watched = self._sign if is_over else ""
        leads, text = await self.ask("acquire", lambda: self.redis.acquire(self._service, self.name, watched))
        if not leads:
            if text != self._sign:
                self._sign, self._seen_at_s = text, self.agenda.now
            return await sleep(RENEW_S)
        self._sign = ""
        term = await self._begin_term(text)
        while True:
            await self._turn(term)

    async def _begin_term(self, holder: str) -> Term[C]:
        """Snapshot, then the log up to the committed id."""
        await self.ask("load", lambda: self.redis.renew(self._service, holder))
        saved, shared_offset_s = await self.ask("load", lambda: self.redis.load(self._service))
        core = self._make_core()
        covered, snapshot, offset_s, last_s = saved.get("snapshot", (NO_ID, None, 0.0, 0.0))
        if snapshot is not None:
            core.restore(snapshot)
        marks: dict[bytes, float] = {name: value for name, value in saved.items() if isinstance(name, bytes)}
        term = Term(core, holder, covered, ClusterClock(offset_s, last_s, marks))
        term.committed = saved.get("committed", NO_ID)
        while term.last_id < term.committed:
            replay = partial(self.redis.read, self._inbox, term.last_id, MAX_BATCH_ENTRIES)
            entries = [entry for entry in await self.ask("replay", replay) if entry[0] <= term.committed]
            if not entries:
                break
            for entry_id, message in entries:
                self._fold(term, entry_id, message)
        term.is_replaying = False
        term.last_id = max(term.last_id, term.committed)
        redis_s = await self.ask("load", self.redis.time_s)
        term.clock.begin(redis_s, self.agenda.now, shared_offset_s)
        self.term = term
        self.note("leads from", term.last_id)
        return term

    async def _turn(self, term: Term[C]) -> None:
        """Read, fold, commit."""
        entries = await self._read(term)
        effects: list[Effect] = []
        for entry_id, message in entries:
            effects += self._fold(term, entry_id, message)
        await self._commit(term, entries, effects)
        if term.num_since_snapshot >= self._snapshot_every:
            await self.ask("renew", lambda: self.redis.renew(self._service, term.holder))
            clock = term.clock
            snapshot = (term.last_id, term.core.snapshot(), clock.offset_s, clock.last_s)
            marked = clock.marked
            await self.ask(
                "snapshot",
                lambda: self.redis.save(self._service, term.holder, self._inbox, term.committed, snapshot, marked),
            )
            clock.forget(marked)
            term.num_since_snapshot = 0

    async def _commit(self, term: Term[C], entries: list[tuple[EntryId, Message]], effects: list[Effect]) -> None:
        wake_at = term.core.wake_at
        began_s = self.agenda.now
        if wake_at is not None and wake_at <= term.clock.now(began_s) and not term.tick_sent:
            effects.append(Send(self._inbox, Tick()))
            term.tick_sent = True
        last = entries[-1] if entries else None
        marks = term.clock.take_marks()
        redis_s = await self.ask(
            "commit",
            lambda: self.redis.commit(self._service, term.holder, self._inbox, term.committed, last, effects, marks),
        )
        term.committed = last[0] if last is not None else term.committed
        term.clock.compare(redis_s, began_s, self.agenda.now)
        for effect in effects:
            self.note("->", effect)
            if isinstance(effect, Solve):
                self.spawn(self._answer(effect.problem))
        term.num_since_snapshot += len(entries)

    async def _read(self, term: Term[C]) -> list[tuple[EntryId, Message]]:
        """Wait until there is something, or the core wants to wake, or a sign of life is due."""
        num_entries = self.chance.choice((1, 3, MAX_BATCH_ENTRIES))
        if not self.redis.has_news(self._inbox, term.last_id):
            due_s = RENEW_S
            wake_at = term.core.wake_at
            if wake_at is not None and not term.tick_sent:
                due_s = min(due_s, max(0.001, wake_at - term.clock.now(self.agenda.now) + 0.001))
            await wait(self.redis.signal(self._inbox), due_s)
        return await self.ask("read", lambda: self.redis.read(self._inbox, term.last_id, num_entries))

    def _fold(self, term: Term[C], entry_id: EntryId, message: Message) -> list[Effect]:
        term.last_id = entry_id
        is_tick = isinstance(message, Tick)
        if is_tick:
            term.tick_sent = False
        name = b"%d-%d" % entry_id
        clock = term.clock
        now = clock.replay(name) if term.is_replaying else clock.read(name, self.agenda.now, is_tick=is_tick)
        if not is_tick:
            self.note("<-", entry_id, message)
        effects = term.core.handle(message, now)  # type: ignore[arg-type]
        self._look(term.core)
        return effects

    async def _answer(self, problem: PlacementProblem) -> None:
        """As `shared.service.background.solver`: an answer that cannot be sent is lost."""
        assert self._solve is not None
        await sleep(MAX_SOLVE_S * self.chance.random() ** 3)
        plan = self._solve(problem)
        try:
            await self.ask("solved", lambda: self.redis.add((self._inbox, Solved(plan=plan))))
        except RedisAwayError:
            self.note("plan lost")

"""A service: the live core, driven as `shared.driver` and `shared.commit_log` do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shared.commit_log import MAX_BATCH_ENTRIES
from shared.core import Core, Effect, Send, Solve
from shared.driver import BACKOFF_S, RENEW_S
from shared.message import Message, Tick
from shared.placement import PlacementProblem, Plan, Solved
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

    @property
    def core(self) -> C | None:
        """While this instance leads."""
        return self.term.core if self.term is not None and self.is_alive else None

    def begin(self) -> None:
        """One loop."""
        self.term = None
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
        holder = await self.ask("acquire", lambda: self.redis.acquire(self._service, self.name))
        if holder is None:
            return await sleep(RENEW_S)
        term = await self._begin_term(holder)
        while True:
            await self._turn(term)

    async def _begin_term(self, holder: str) -> Term[C]:
        """Snapshot, then the log up to the committed id."""
        saved = await self.ask("load", lambda: self.redis.load(self._service))
        core = self._make_core()
        covered, snapshot = saved.get("snapshot", (NO_ID, None))
        if snapshot is not None:
            core.restore(snapshot)
        term = Term(core, holder, covered)
        committed: EntryId = saved.get("committed", NO_ID)
        while term.last_id < committed:
            after = term.last_id
            entries = await self.ask("replay", lambda: self.redis.read(self._inbox, after, MAX_BATCH_ENTRIES))
            entries = [entry for entry in entries if entry[0] <= committed]
            if not entries:
                break
            for entry_id, message in entries:
                self._fold(term, entry_id, message)
        term.last_id = max(term.last_id, committed)
        self.term = term
        self.note("leads from", term.last_id)
        return term

    async def _turn(self, term: Term[C]) -> None:
        """Read, fold, commit."""
        entries = await self._read(term)
        effects: list[Effect] = []
        for entry_id, message in entries:
            effects += self._fold(term, entry_id, message)
        wake_at = term.core.wake_at
        if wake_at is not None and wake_at <= self.redis.time_s() and not term.tick_sent:
            effects.append(Send(self._inbox, Tick()))
            term.tick_sent = True
        committed = entries[-1][0] if entries else None
        await self.ask("commit", lambda: self.redis.commit(self._service, term.holder, committed, effects))
        if self.world.transcript.is_kept:
            for effect in effects:
                self.note("->", effect)
        term.num_since_snapshot += len(entries)
        for effect in effects:
            if isinstance(effect, Solve):
                self.spawn(self._answer(effect.problem))
        if term.num_since_snapshot >= self._snapshot_every:
            covered, snapshot = term.last_id, term.core.snapshot()
            await self.ask("snapshot", lambda: self.redis.save(self._service, term.holder, self._inbox, covered, snapshot))
            term.num_since_snapshot = 0

    async def _read(self, term: Term[C]) -> list[tuple[EntryId, Message]]:
        """Wait until there is something, or the core wants to wake, or the lease is to be renewed."""
        num_entries = self.chance.choice((1, 3, MAX_BATCH_ENTRIES))
        entries = await self.ask("read", lambda: self.redis.read(self._inbox, term.last_id, num_entries))
        if entries:
            return entries
        due_s = RENEW_S
        wake_at = term.core.wake_at
        if wake_at is not None and not term.tick_sent:
            due_s = min(due_s, max(0.001, wake_at - self.redis.time_s() + 0.001))
        await wait(self.redis.signal(self._inbox), due_s)
        return await self.ask("read", lambda: self.redis.read(self._inbox, term.last_id, num_entries))

    def _fold(self, term: Term[C], entry_id: EntryId, message: Message) -> list[Effect]:
        term.last_id = entry_id
        if isinstance(message, Tick):
            term.tick_sent = False
        else:
            self.note("<-", entry_id, message)
        effects = term.core.handle(message, entry_id[0] / 1000)  # type: ignore[arg-type]
        self._look(term.core)
        return effects

    async def _answer(self, problem: PlacementProblem) -> None:
        """As `shared.solver`: an answer that cannot be sent is lost."""
        assert self._solve is not None
        await sleep(MAX_SOLVE_S * self.chance.random() ** 3)
        plan = self._solve(problem)
        try:
            await self.ask("solved", lambda: self.redis.add((self._inbox, Solved(plan=plan))))
        except RedisAwayError:
            self.note("plan lost")

"""From a pulled entry to a run in the engine: which requests are refused, given back or held back, and which begin."""

from __future__ import annotations

from gpu_node.agent.decisions.actions import (
    Ack,
    AgentAction,
    DiscardImage,
    GroupEntry,
    ImageFetched,
    PrefixFetched,
    Resume,
    SeekPrefix,
    StartAttempt,
    StopFetch,
    Taken,
    Tell,
)
from gpu_node.agent.decisions.intake.awaited_adapters import MAX_AWAITING, AwaitedAdapters
from gpu_node.agent.decisions.intake.entries import EntryFate, fate, given_back, lacks_adapter, refusal
from gpu_node.agent.decisions.intake.probation import Beginning, Probation
from gpu_node.agent.decisions.intake.sought_prefixes import SoughtPrefixes
from gpu_node.agent.decisions.ledger import Ledger
from gpu_node.agent.decisions.models.models import NodeModels
from gpu_node.agent.decisions.telling.outbox import Outbox
from gpu_node.engine.process.protocol.prefix_protocol import PrefixFound
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, AbortRequests, RunAttempt
from shared.messages.requests.requests import HANDED_OVER, Attempt, Chunk, EvictedRequest


class Intake:
    """What is pulled is in the ledger from then on, whether it begins at once or not."""

    def __init__(self, node: str, ledger: Ledger, models: NodeModels, *, fetches_prefixes: bool = False) -> None:
        """``fetches_prefixes``: beginnings of prompts come from nodes that have them."""
        self._node = node
        self._ledger = ledger
        self._models = models
        self._probation = Probation(ledger)
        self._awaited = AwaitedAdapters(models)
        self._sought = SoughtPrefixes(node, models, is_on=fetches_prefixes)
        self._fetching: dict[Attempt, None] = {}
        self.num_sent = 0
        """Requests that the engine has been given."""

    @property
    def holds_any(self) -> bool:
        """Pulled requests have not begun: nothing is to be pulled."""
        return self._probation.holds_any or len(self._awaited) >= MAX_AWAITING

    @property
    def wants_adapters(self) -> bool:
        """Whether the current model is to be loaded with others: a request waits for one, or nothing runs."""
        model = self._models.current
        if not model or model in self._models.broken:
            return False
        return self._awaited.wants_load or (not self._ledger.running and self._models.adapters.lacks(model))

    def due(self, now: float) -> None:
        """Time has passed for requests that wait for adapters."""
        self._awaited.due(now)

    @property
    def num_fetching(self) -> int:
        """Requests whose image, or prefix, is on the way: they will want room in the engine."""
        return len(self._fetching)

    @property
    def sought(self) -> list[Attempt]:
        """Those of them whose prompt the engine is asked about, or another node."""
        return self._sought.attempts

    def check(self) -> None:
        """Assert that the books balance, behind any event."""
        for attempt in [*self._fetching, *self._awaited.attempts]:
            running = self._ledger.find(attempt.request_id, attempt.attempt)
            assert running is not None, f"{attempt} is fetched for and not in the ledger"
            assert running.is_fetching, f"{attempt} is fetched for and runs"
        self._sought.check(self._fetching)

    @property
    def awaits_engine(self) -> bool:
        """Whether the engine has a request, or is asked about one."""
        return self._sought.awaits_engine or any(not run.is_fetching for run in self._ledger.running.values())

    @property
    def blamed(self) -> list[Attempt]:
        """The only ones that can be the reason, should the engine die now; empty where it may be any that runs."""
        return self._probation.blamed

    def take(self, taken: Taken) -> list[AgentAction]:
        """Entries have come."""
        outbox = Outbox(self._node)
        dropped: list[str] = []
        for entry in taken.entries:
            ack = Ack(taken.group, entry.entry_id)
            mismatch = self._models.mismatch(entry.payload) if entry.payload else ""
            match fate(entry, self._models.current, self._models.broken, mismatch):
                case EntryFate.REFUSED, error:
                    dropped += self._drop(entry)
                    last = refusal(entry, error)
                    outbox.add(entry.enqueued.gateway, last)
                    outbox.finish(last, last.index, ack)
                case EntryFate.STALE, _:
                    dropped += self._drop(entry)
                    outbox.ack(ack)
                case EntryFate.LOST, _:
                    dropped += self._drop(entry)
                    outbox.evict(given_back(entry, self._node), ack)
                case _:
                    self._admit(taken.group, entry)
        return [*_abort(dropped), *self.begin(), *outbox.publish()]

    def begin(self) -> list[AgentAction]:
        """The engine gets those whose turn it is."""
        actions = self._end_waits()
        for start in self._probation.begin():
            if isinstance(start, Tell):
                self.num_sent += 1
                actions.append(start)
            else:
                self._fetch(Attempt(start.payload.request_id, start.payload.attempt))
                actions.append(self._sought.seek(start) if isinstance(start, SeekPrefix) else start)
        return actions

    def _end_waits(self) -> list[AgentAction]:
        """Of those whose adapter is here now, or will not be, or whose model has left."""
        for attempt in self._awaited.attempts:
            if self._ledger.find(attempt.request_id, attempt.attempt) is None:
                self._awaited.forget(attempt)
        outbox = Outbox(self._node)
        leaving = self._awaited.take_strangers()
        for attempt in leaving:
            self._return(attempt, outbox)
        for attempt, error in self._awaited.take_refused():
            leaving.append(attempt)
            running = self._ledger.running.pop(attempt.request_id)
            last = lacks_adapter(attempt, running.output_tokens, error)
            outbox.add(running.gateway, last)
            outbox.finish(last, last.index, running.ack)
        for beginning in self._awaited.take_ready():
            self._ledger.running[beginning.attempt.request_id].is_fetching = False
            self._probation.add(beginning)
        return [*_abort([attempt.request_id for attempt in leaving]), *outbox.publish()]

    def _fetch(self, attempt: Attempt) -> None:
        running = self._ledger.find(attempt.request_id, attempt.attempt)
        assert running is not None, "a request that begins is in the ledger"
        running.is_fetching = True
        self._fetching[attempt] = None

    def fetched(self, event: ImageFetched | PrefixFetched) -> list[AgentAction]:
        """An image or a prefix has come, or is lost; the request begins, unless it was given up meanwhile."""
        payload = event.payload
        attempt = Attempt(payload.request_id, payload.attempt)
        if attempt not in self._fetching or self._ledger.find(attempt.request_id, attempt.attempt) is None:
            return [DiscardImage(event.file)]
        self._begins(attempt)
        if isinstance(event, ImageFetched):
            return [Tell(RunAttempt(payload, event.file))]
        return [Tell(RunAttempt(payload, prefix=event.file if event.file != NO_IMAGE else None))]

    def prefix_found(self, event: PrefixFound) -> list[AgentAction]:
        """The engine has said what it has of a prompt; the request begins, unless more of it is fetched."""
        action = self._sought.found(event)
        if isinstance(action, Tell):
            self._begins(Attempt(event.request_id, event.attempt))
        return [action] if action is not None else []

    def _begins(self, attempt: Attempt) -> None:
        del self._fetching[attempt]
        self._sought.forget(attempt)
        running = self._ledger.find(attempt.request_id, attempt.attempt)
        assert running is not None, "a request that is given up is forgotten with the same event"
        running.is_fetching = False
        self.num_sent += 1

    def stop_fetching(self) -> list[AgentAction]:
        """Images of those that are not in the ledger any more."""
        gone = [one for one in self._fetching if self._ledger.find(one.request_id, one.attempt) is None]
        for attempt in gone:
            del self._fetching[attempt]
            self._sought.forget(attempt)
        return [StopFetch(gone)] if gone else []

    def prove(self, chunk: Chunk) -> None:
        """A request that runs has brought something."""
        if chunk.token_ids:
            self._probation.prove(Attempt(chunk.request_id, chunk.attempt))

    def give_back(self, attempts: list[Attempt]) -> list[AgentAction]:
        """Those of these that have not begun: they are not in the engine, which at most keeps KV of an earlier run."""
        waiting = {*self._fetching, *self._awaited.attempts}
        held = [*self._probation.take_back(attempts), *(one for one in attempts if one in waiting)]
        outbox = Outbox(self._node)
        for attempt in held:
            self._awaited.forget(attempt)
            self._return(attempt, outbox)
        return [*_abort([attempt.request_id for attempt in held]), *outbox.publish()]

    def _return(self, attempt: Attempt, outbox: Outbox) -> None:
        running = self._ledger.running.pop(attempt.request_id)
        told = EvictedRequest(attempt.request_id, attempt.attempt, running.output_tokens, 0, self._node)
        outbox.evict(told, running.ack)

    def _drop(self, entry: GroupEntry) -> list[str]:
        """It does not begin: KV that was kept for it is of no use."""
        request_id = entry.enqueued.request_id
        was_here, _ = self._ledger.forget(Attempt(request_id, entry.enqueued.attempt))
        return [request_id] if was_here else []

    def _admit(self, group: str, entry: GroupEntry) -> None:
        payload = entry.payload
        assert payload is not None, "what has no payload is given back"
        if self._ledger.goes_on(group, entry):
            return
        running = self._ledger.run(group, entry, payload)
        start: StartAttempt = Tell(RunAttempt(payload))
        if entry.enqueued.kv_at == HANDED_OVER:
            start = Resume(payload, entry.enqueued.image)
        elif (source := entry.enqueued.prefix_at) is not None and self._sought.wants(payload, source):
            start = SeekPrefix(payload, source)
        attempt = Attempt(payload.request_id, payload.attempt)
        beginning = Beginning(attempt, start, is_suspect=payload.num_crashes > 0)
        if self._models.adapters.serves(payload.model, payload.adapter):
            self._probation.add(beginning)
        else:
            running.is_fetching = True
            self._awaited.add(beginning, payload.model, payload.adapter)


def _abort(request_ids: list[str]) -> list[AgentAction]:
    return [Tell(AbortRequests(request_ids))] if request_ids else []

"""A gateway: the live decisions about answers, and around them what its dispatcher and `redis_queue` do."""

from __future__ import annotations

from functools import partial

from gateway.generation.generation import Verdict
from gateway.generation.stop_strings import StopPattern
from gateway.inflight.bus.redis_queue import BACKOFF_S, BEAT_S
from gateway.inflight.bus.released import Released
from gateway.inflight.calls.job import Job
from gateway.inflight.calls.request import InflightRequest
from gateway.inflight.releases import RETRY_S, SURELY_S
from shared.bus import streams
from shared.messages.memory.blocks import Locate
from shared.messages.message import Message
from shared.messages.requests import inventories
from shared.messages.requests.requests import Attempt, Cancel, GatewayBeat, Rejected, Resubmit, Tokens
from tests.schedules.agenda import sleep
from tests.schedules.cached import BLOCK_SIZE
from tests.schedules.ledger import Ledger
from tests.schedules.orders import TOKEN_BYTES, Order
from tests.schedules.process import Process, World
from tests.schedules.reader import Reader
from tests.schedules.redis_model import RedisAwayError, RedisFullError


class GatewayProcess(Process):
    """One replica over all its lives; each has a name of its own."""

    def __init__(self, world: World, name: str, ledger: Ledger) -> None:
        super().__init__(world, name)
        self.inflight: dict[str, InflightRequest] = {}
        self.gateway = ""
        self._ledger = ledger
        self._num_lives = 0

    def begin(self) -> None:
        """Open the token stream, then receive and beat."""
        self._num_lives += 1
        self.gateway = f"{self.name}-{self._num_lives}"
        self.inflight = {}
        self.is_open = False
        self._reader = Reader(self, streams.tokens(self.gateway), BACKOFF_S)
        self._settled_run = self._num_inventories = 0
        self._released = Released()
        self._submitting: set[str] = set()
        self._unsure: set[str] = set()
        self.spawn(self._serve())

    def die(self) -> None:
        """Its clients are gone with it."""
        if self.is_alive:
            self._ledger.note_gone(self.inflight)
            self._ledger.expiring |= self._unsure
            self.inflight = {}
        super().die()

    async def _serve(self) -> None:
        while not self.is_open:
            try:
                await self._open()
            except RedisAwayError:
                await sleep(BACKOFF_S)
        self.spawn(self._receive())
        self.spawn(self._beat())

    async def _open(self) -> None:
        self._settled_run = await self.ask("open", lambda: self.redis.run_id)
        await self._open_stream("open", GatewayBeat(gateway=self.gateway))
        self.is_open = True

    async def _open_stream(self, command: str, sign: GatewayBeat) -> None:
        """In one step with a sign of life, or nobody would know whose stream it is."""
        await self._reader.start()
        await self.ask(command, lambda: self.redis.add((self._reader.stream, sign), (streams.QUEUE, sign)))

    # --- clients ----------------------------------------------------------------------------------------------------

    def order(self, order: Order) -> None:
        """A client asks."""
        self.spawn(self._order(order))

    async def _order(self, order: Order) -> None:
        job = Job(
            order.request_id,
            order.model,
            order.prompt,
            order.sampling,
            [StopPattern(one) for one in order.stops],
            TOKEN_BYTES,
            order.slo,
            tenant="default",
            block_tokens=BLOCK_SIZE if self.world.doors is not None else 0,
        )
        request = InflightRequest(job, self.gateway, 0, lambda news: self._ledger.note_news(order, news))
        self.inflight[order.request_id] = request
        self._ledger.note_asked(order)
        payload, submit = request.messages(0, self.agenda.now)
        self._submitting.add(order.request_id)
        is_done = False
        try:
            await self.ask("submit", lambda: self.redis.submit(payload, submit))
            is_done = True
        except RedisAwayError as error:
            request.is_unsure = not isinstance(error, RedisFullError)
        self._submitting.remove(order.request_id)
        if order.request_id not in self.inflight:
            await self._release(request)
        elif not is_done:
            self._ledger.note_refused(order)
            self._leave(request)

    def leave(self, request_id: str) -> None:
        """A client goes away."""
        request = self.inflight.get(request_id)
        if request is not None:
            self.note(request_id, "leaves")
            self._ledger.note_left(request_id)
            self._leave(request)

    def _leave(self, request: InflightRequest) -> None:
        """Nothing of it remains; the queue is told behind the submit."""
        request_id = request.job.request_id
        del self.inflight[request_id]
        if request_id not in self._submitting:
            self.spawn(self._release(request))

    async def _release(self, request: InflightRequest) -> None:
        """As `gateway.inflight.releases`: until it is told, and once more where its submit may come behind that."""
        began_s = self.agenda.now
        request_id = request.job.request_id
        cancel = Cancel(request_id=request_id)
        if request.is_unsure:
            self._unsure.add(request_id)
        await self._tell(request_id, None if request.generation.ended_by_node else cancel)
        if request.is_unsure:
            await sleep(max(0.0, began_s + SURELY_S - self.agenda.now))
            await self._tell(request_id, cancel)
            self._unsure.discard(request_id)

    async def _tell(self, request_id: str, message: Cancel | None) -> None:
        while True:
            try:
                await self.ask("release", lambda: self.redis.release(request_id, message))
            except RedisAwayError:
                await sleep(RETRY_S)
            else:
                self._released.note(request_id, self.agenda.now)
                return

    # --- the cluster ------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            await self._deliver(await self._reader.next())

    async def _deliver(self, message: Message) -> None:
        """Until it is delivered; doing it twice does it once."""
        while True:
            try:
                return await self._take(message)
            except RedisAwayError:
                await sleep(BACKOFF_S)

    async def _take(self, message: Message) -> None:
        match message:
            case Tokens(chunks=chunks):
                for chunk in chunks:
                    request = self.inflight.get(chunk.request_id)
                    if request is not None:
                        self.note("<-", chunk)
                        if request.take(chunk, message.node) is Verdict.GAP:
                            await self._try_again(request)
                        self._end_if_over(request)
            case Resubmit():
                await self._resubmit(message)
            case Rejected():
                request = self.inflight.get(message.request_id)
                if request is not None:
                    request.reject(message)
                    self._end_if_over(request)

    async def _resubmit(self, message: Resubmit) -> None:
        for lost in message.requests:
            request = self.inflight.get(lost.request_id)
            if request is None or request.generation.is_over:
                cancel = Cancel(request_id=lost.request_id)  # or it would be waited for: an end was not heard
                await self.ask("release", partial(self.redis.release, lost.request_id, cancel))
            elif request.generation.attempt == lost.attempt:
                await self._try_again(request, gave_way=message.gave_way, has_crashed=message.has_crashed)
                self._end_if_over(request)

    async def _try_again(self, request: InflightRequest, *, gave_way: bool = False, has_crashed: bool = False) -> None:
        generation = request.generation
        if generation.is_over:
            return
        if not generation.may_try_again(gave_way=gave_way, has_crashed=has_crashed):
            if has_crashed:
                request.give_up_crashed()
            else:
                request.give_up()
            return
        attempt = generation.attempt + 1
        payload, submit = request.messages(attempt, self.agenda.now, has_crashed=has_crashed)
        self.note("submits", submit.request_id, "attempt", attempt)
        try:
            await self.ask("submit", lambda: self.redis.submit(payload, submit))
        except RedisAwayError:
            request.is_unsure = True
            raise
        await self._ask_where(Locate.of(submit))
        generation.begin_attempt(attempt, gave_way=gave_way, has_crashed=has_crashed)
        request_id = request.job.request_id
        if request_id not in self.inflight:  # the client left meanwhile, and its Cancel may have come first
            await self.ask("release", lambda: self.redis.release(request_id, Cancel(request_id=request_id)))

    async def _ask_where(self, question: Locate | None) -> None:
        """Of a further attempt, apart from it: that it cannot be asked must not have it submitted once more."""
        if question is None:
            return
        try:
            await self.ask("locate", lambda: self.redis.add((streams.KV, question)))
        except RedisAwayError:
            self.note("could not ask where", question.request_id, "is cached")

    def _end_if_over(self, request: InflightRequest) -> None:
        """The handler sends the end to its client, and leaves."""
        if request.generation.is_over and request.job.request_id in self.inflight:
            self._ledger.note_over(request)
            self._leave(request)

    async def _beat(self) -> None:
        while True:
            try:
                await self._show_life()
            except RedisAwayError:
                self.note("no sign of life sent")
            await sleep(BEAT_S)

    async def _show_life(self) -> None:
        """Another Redis, or one that has forgotten the token stream, is told everything again."""
        run_id = await self.ask("beat", lambda: self.redis.run_id)
        is_gone = await self.ask("beat", lambda: self.redis.last_id(self._reader.stream)) is None
        if run_id == self._settled_run and not is_gone:
            await self.ask("beat", lambda: self.redis.add((streams.QUEUE, GatewayBeat(gateway=self.gateway))))
            return
        if is_gone:
            await self._say_inventory(is_gone=True)
        else:
            await self.ask("beat", self._reader.put_back)
            await self._say_inventory()
        self._settled_run = run_id

    async def _say_inventory(self, *, is_gone: bool = False) -> None:
        self._num_inventories += 1
        number = self._num_inventories
        date = GatewayBeat(gateway=self.gateway, inventory=number)
        if is_gone:
            await self._open_stream("inventory", date)
        else:
            await self.ask("inventory", lambda: self.redis.add((streams.QUEUE, date)))
        inflight = [
            Attempt(name, request.generation.attempt)
            for name, request in self.inflight.items()
            if not request.generation.is_over
        ]
        self.note("says inventory", inflight)
        parts = [(streams.QUEUE, part) for part in inventories.of_gateway(self.gateway, number, inflight)]
        await self.ask("inventory", lambda: self.redis.add(*parts))
        for request_id in self._released.recent(self.agenda.now):
            await self.ask("inventory", partial(self.redis.release, request_id, None))

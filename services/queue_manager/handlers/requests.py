"""What becomes of one request: accepted, grouped, pulled, finished, given up, or asked for again."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.queues.warm_prefix import PrefixFetch, WarmPrefix
from services.queue_manager.state.group import Group
from services.queue_manager.state.interning import Interning
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from services.queue_manager.waits.prompts import PromptLines
from shared.bus import streams
from shared.messages.prefixes.prefix_sources import PrefixSource
from shared.messages.requests.requests import Abort, Attempt, Cancel, Enqueued, Finished, Pulled, Resubmit, Submit
from shared.service.core import Drop, Effect, Send

ANSWERED = ("stop", "length")  # ends that say how long answers are, and that a prompt was computed; errors do not


class Requests:
    """Owns `State.requests`, and closes groups that have become empty."""

    def __init__(
        self,
        state: State,
        groups: RequestGroups,
        queues: VirtualQueues,
        interning: Interning,
        prompts: PromptLines,
    ) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._journal = groups.journal
        self._interning = interning
        self._prompts = prompts

    # --- in -------------------------------------------------------------------------------------------------------

    def accept(self, message: Submit, now: float) -> tuple[list[Effect], Request | None]:
        """A first attempt, or a further one, to be placed; None for a repetition."""
        effects: list[Effect] = []
        request = self._state.requests.get(message.request_id)
        if request is None:
            request = self._interning.request(message, now)
            self._state.requests[request.request_id] = request
        elif message.attempt <= request.attempt:
            return [], None
        else:
            if request.group:
                effects += self._withdraw(request)
            request.begin_attempt(message)
        if message.wants_place:
            self._state.watching[request.request_id] = None
        return effects, request

    def place(self, request: Request, message: Submit, now: float, warm: WarmPrefix | None = None) -> list[Effect]:
        """Where it begins at once, or waits; ``warm`` is what is known of nodes that have something of its prompt."""
        seat = self._queues.seat_of(self._groups.newcomer(message, now), request.slo, warm, but=request.left)
        request.left = ""
        name = seat.node if seat else ""
        if warm is None:
            group = self._groups.join(request, now, name)
        else:
            warm_at = name or warm.home(request.prompt_tokens)
            tokens = warm.tokens_at(warm_at) if seat is None else warm.tokens_for(seat.known, message.model)
            group = self._groups.join(request, now, name, warm_at=warm_at, warm_tokens=tokens)
        self._seat(group, seat, now)
        fetch = self._fetch(group, warm) if warm is not None else None
        source = fetch.source(message.model) if fetch is not None else None
        return [self.enqueue(request, message.traceparent, source)]

    def _fetch(self, group: Group, warm: WarmPrefix) -> PrefixFetch | None:
        """What the node that pulls the group's newest member should fetch.

        A group that runs stays at its node. One that waits where its prompt is may be moved: then it is read there.
        (A node that is told of another one asks its engine before it begins, so no node is told in vain.)
        """
        node = self._state.nodes.get(group.node)
        if node is None:
            return warm.fetch_anywhere(group.model)
        fetch = warm.fetch_to(node.known, group.model)
        return fetch if fetch is not None or group.running else warm.fetch_anywhere(group.model, node.node)

    def enqueue(self, request: Request, traceparent: str = "", prefix_at: PrefixSource | None = None) -> Effect:
        """The entry of its group's stream that lets a node pull the request."""
        entry = Enqueued(
            request_id=request.request_id,
            attempt=request.attempt,
            gateway=request.gateway,
            kv_at=self._state.groups[request.group].kv_at,
            image=request.image,
            prefix_at=prefix_at,
            traceparent=traceparent,
        )
        return Send(streams.group(request.group), entry)

    def _seat(self, group: Group, seat: Node | None, now: float) -> None:
        """A group has a new member: see that it has a place, and that the place is good enough."""
        if group.node:
            self._queues.weigh(group, now)
        elif seat is not None:
            self._queues.enter_seat(group, seat, now)
        else:
            self._queues.place_new(group, now)

    # --- out ------------------------------------------------------------------------------------------------------

    def cancel(self, message: Cancel) -> list[Effect]:
        """The client left."""
        request = self._state.requests.get(message.request_id)
        return self.forget(request) if request is not None else []

    def forget(self, request: Request) -> list[Effect]:
        """No client waits for the answer any more."""
        self._end(request)
        return self._withdraw(request) if request.group else []

    def _end(self, request: Request) -> None:
        del self._state.requests[request.request_id]
        self._state.watching.pop(request.request_id, None)
        self._state.locating.pop(request.request_id, None)
        self._journal.ended.append(request.request_id)

    def _withdraw(self, request: Request) -> list[Effect]:
        """Take a request out of its group; what is run or kept of it is freed."""
        return [*self._free(request), *self.leave(request)]

    def _free(self, request: Request) -> list[Effect]:
        node = self._state.nodes.get(request.node or self._state.groups[request.group].kv_at)
        attempt = Attempt(request.request_id, request.attempt)
        return [*(abort(node, [attempt]) if node is not None else []), *self._drop_image(request)]

    def _drop_image(self, request: Request) -> list[Effect]:
        """Of an attempt that is over; one that has been fetched is gone already.

        Its giver would hold it until its time is over, and have no room meanwhile for those that follow.
        """
        node, request.giver = self._state.nodes.get(request.giver), ""
        return abort(node, [Attempt(request.request_id, request.attempt)]) if node is not None else []

    def leave(self, request: Request) -> list[Effect]:
        """Take a request out of its group, and close that if it was the last."""
        return self.close_if_empty(self._groups.leave(request))

    def close_if_empty(self, group: Group) -> list[Effect]:
        """A member has left the group: it ends with its last member, and so does its stream."""
        if group.num_members:
            self._queues.lighten(group)
            return []
        self._queues.remove(group)
        self._groups.close(group)
        self._state.hand_overs.pop(group.gid, None)
        return [Drop(streams.group(group.gid))]

    def move_on(self, requests: list[Request]) -> list[Effect]:
        """They leave the nodes where they wait, and are placed at others if they can begin there."""
        for request in requests:
            request.left = self._state.groups[request.group].node
        return self.resubmit(requests, gave_way=True)

    def resubmit(self, requests: list[Request], *, gave_way: bool = False, has_crashed: bool = False) -> list[Effect]:
        """These attempts are lost: their gateways, which know what the clients have, submit the next ones."""
        effects: list[Effect] = []
        by_gateway: dict[str, list[Attempt]] = {}
        for request in requests:
            by_gateway.setdefault(request.gateway, []).append(Attempt(request.request_id, request.attempt))
            effects += self._drop_image(request)
            effects += self.leave(request)  # it stays known, with its time of arrival, until it is submitted again
        for gateway, attempts in by_gateway.items():
            message = Resubmit(requests=attempts, gave_way=gave_way, has_crashed=has_crashed)
            effects.append(Send(streams.tokens(gateway), message, to_existing=True))
        return effects

    # --- at a node ------------------------------------------------------------------------------------------------

    def pulled(self, message: Pulled, now: float) -> list[Effect]:
        """A node has taken entries of a group. What was given up meanwhile is stopped there."""
        node = self._state.nodes.get(message.node)
        if node is not None and node.epoch != message.epoch:
            node = None  # pulled by an epoch that has been declared dead: lost like the rest
        reading = self._prompts.reading(node, self._state.groups.get(message.group), now)
        taken: list[Request] = []
        moved: list[Request] = []
        stopped: list[Attempt] = []
        for attempt in dict.fromkeys(message.requests):
            request = self.current(attempt)
            if request is None or not request.group:
                stopped.append(attempt)
            elif request.group != message.group:
                moved.append(request)
                stopped.append(attempt)
            elif not request.node:
                taken.append(request)
                self._state.watching.pop(request.request_id, None)
                self._groups.pull(request, message.node, now, begins_s=reading.read(request))
        if node is None:
            # An epoch that is over, and then no node reads this; or one that is not known yet, because Redis has lost
            # what told of it: it would work in vain.
            strays = [Attempt(request.request_id, request.attempt) for request in taken]
            inbox = streams.node_inbox(message.node)
            # not to an existing stream alone: Redis may have lost that as well, and the node reads it once it is there
            stop = Send(inbox, Abort(requests=[*strays, *stopped]), max_entries=streams.MAX_NODE_INBOX)
            return [stop, *self.resubmit(taken)]
        node.num_heard = max(node.num_heard, message.number)
        lost = [*moved, *(taken if message.group in self._state.hand_overs else ())]
        if not lost:
            self._journal.pulled[node.node] = None
        return [*abort(node, stopped), *self.lose(lost)]

    def lose(self, requests: list[Request]) -> list[Effect]:
        """Give up attempts that may be at a node that is not known, as where a pull has crossed with a hand-over.

        Two nodes may have them, or one may have them twice: another attempt is right whatever was done first.
        """
        freed = [effect for request in requests for effect in self._free(request)]
        return [*freed, *self.resubmit(requests, gave_way=True)]

    def finished(self, message: Finished, now: float) -> list[Effect]:
        """Attempts have ended on a node."""
        effects: list[Effect] = []
        for finished in message.requests:
            request = self.current(Attempt(finished.request_id, finished.attempt))
            if request is None:
                continue
            self._end(request)
            self._state.finished_since_beat.setdefault(request.gateway, []).append(request.request_id)
            if request.group:  # else a node thought dead has finished it after all
                if finished.reason in ANSWERED:
                    self._prompts.finished(request, now)
                    is_cut = finished.reason == "length"
                    self._groups.learn_answer(request, finished.output_tokens, now, is_cut=is_cut)
                effects += self.leave(request)
        return effects

    def current(self, attempt: Attempt) -> Request | None:
        """The request, if this is its newest attempt."""
        request = self._state.requests.get(attempt.request_id)
        return request if request is not None and request.attempt == attempt.attempt else None


def abort(node: Node, attempts: list[Attempt]) -> list[Effect]:
    """Have a node stop attempts, and drop what it keeps of them."""
    if not attempts:
        return []
    return [Send(streams.node_inbox(node.node), Abort(requests=attempts), max_entries=streams.MAX_NODE_INBOX)]

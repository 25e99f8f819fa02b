"""The conversation with the scheduler: when to ask for a plan, what to tell it, which answers to take.

A plan is asked for at once when nodes come, go or change their model, when a group has no place, and when one is
predicted to start too late that was not when the last plan was made (QLM, SoCC'24 §4: the scheduler is called when the
waiting-time estimator finds a violation); and soon when a node has nothing to do while others have. It is asked for at
leisure when another order may be better though no promise is in danger (a node has no more to pull, or a group stands
behind one that is due later), and when there is more work where a group is late all the same. A burst is no leisure: a
rule has placed it group by group, and it is the plan that spreads it over the nodes. And now and then while a request
waits, or where there are pools of nodes, while one has come of late: their sizes hang on the answer.

None starves. Inside a group requests are served in the order in which they came. Groups of one model and one kind of
promise start in the order of their rank, which newcomers cannot get before for ever (`fairness`). Between kinds and
models the plan decides, whose cost of lateness grows faster than linearly, so that a group passed over becomes dear;
the groups that are due first are always among those that a plan is asked for. Where that is not enough, `rescue` is.
"""

from __future__ import annotations

import heapq

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.demand import Demand
from services.queue_manager.plans.lateness import Lateness
from services.queue_manager.plans.repair import note_asked
from services.queue_manager.queues.node_phases import decoding, is_undecoded
from services.queue_manager.state.group import Group
from services.queue_manager.state.journal import Journal
from services.queue_manager.state.state import State
from services.queue_manager.waits.interruptions import interruptions
from services.queue_manager.waits.overflow import is_outrun
from services.queue_manager.waits.predictions import FORECAST_GROUPS, Predictions
from shared.bus import streams
from shared.config.services.corrections import Correction
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.placement import ModelLoad, Plan, PlanRequest
from shared.service.core import Effect, Send

PLAN_INTERVAL_S = 0.05  # plans are asked for at most this often
LEISURE_S = 3.0  # and this often where no promise is in danger
IDLE_S = 0.25  # but this often where a node has nothing to do, and another has
WAITING_INTERVAL_S = 10.0  # a plan no older than this while a request waits
SIZING_INTERVAL_S = 5.0  # nor than this while a request has come of late, where there are pools of nodes
CHECK_INTERVAL_S = 0.25  # queues that have changed are looked at this often
CHECK_GROUPS = 128  # groups that are predicted in one decision: where there are more, ticks go on with the look
GROWN, LEAST_GROWN = 1.5, 8  # as many groups as in the last question so many times, and so many more, are a burst
PLAN_TIMEOUT_S = 5.0  # an unanswered request for a plan is sent again
MAX_PLANNED_GROUPS = 400  # bounds the scheduler's work; groups that run and those due first are planned first


class Planning:
    """Owns `State.plan`. One question is open at a time; what changes meanwhile is asked afterwards."""

    def __init__(
        self,
        state: State,
        groups: RequestGroups,
        predictions: Predictions,
        options: QueueOptions,
        demand: Demand | None,
    ) -> None:
        """``demand`` is None where no node comes or goes on their account."""
        self._state = state
        self._demand = demand
        self._groups = groups
        self._lateness = Lateness(state, predictions)
        self._by_prediction = options.rules.predicts
        self._has_interruptions = self._by_prediction and Correction.INTERRUPTIONS in options.corrections

    # --- reasons --------------------------------------------------------------------------------------------------

    def hear(self, journal: Journal) -> None:
        """Take over what the message has changed."""
        plan = self._state.plan
        for gid in journal.closed:
            self._lateness.forget(gid)
        if self._state.groups:
            plan.version += journal.num_calls
        plan.has_chance |= journal.has_chance
        if self._by_prediction:
            plan.touched.update(journal.work)
            for name in journal.pulled:
                self._hear_pull(name)

    def _hear_pull(self, name: str) -> None:
        """A node that only prefills has what no node decodes: another could load its model, above all an idle one."""
        node = self._state.nodes.get(name)
        if node is None or not is_undecoded(self._state, node):
            return
        self._state.plan.has_chance = True
        self._state.plan.has_idle |= any(not one.queue for one in decoding(self._state))

    def hear_idle(self, *, has_dry: bool, has_idle: bool) -> None:
        """While requests wait, nodes have nothing left to pull and could take these; or they have nothing to do."""
        self._state.plan.has_chance |= has_dry
        self._state.plan.has_idle |= has_idle and self._by_prediction

    # --- questions ------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When there is something to look at, to ask, or to ask again; None while there is not."""
        plan = self._state.plan
        if plan.asked_at_s is not None:
            return plan.asked_at_s + PLAN_TIMEOUT_S
        if self._is_idle():
            return None
        times = [plan.checked_at_s + CHECK_INTERVAL_S] if plan.touched else []
        times += [self._state.now_s] if plan.checking else []
        return min([*times, *self._asking_times()], default=None)

    def _asking_times(self) -> list[float]:
        plan = self._state.plan
        times = [plan.stale_at_s] if plan.stale_at_s is not None else []
        if plan.version != plan.asked_version:
            times.append(plan.last_asked_s + PLAN_INTERVAL_S)
        if self._has_burst():
            times.append(plan.last_asked_s + PLAN_INTERVAL_S)
        elif plan.has_chance:
            times.append(plan.last_asked_s + LEISURE_S)
        if plan.has_idle:
            times.append(plan.last_asked_s + IDLE_S)
        return times

    def _has_burst(self) -> bool:
        """There are many more groups than when a plan was asked for last; the other policies place by plan anyway."""
        if not self._by_prediction or not self._state.waiting_at:
            return False
        asked = self._state.plan.num_asked_groups
        return len(self._state.groups) >= max(GROWN * asked, asked + LEAST_GROWN)

    def ask(self, now: float, *, is_tick: bool) -> list[Effect]:
        """Look at the queues that have changed; send a question if one is due."""
        plan = self._state.plan
        if self._demand:
            self._demand.forget(now)
        self._note_who_waits(now)
        if plan.asked_at_s is not None:
            if now < plan.asked_at_s + PLAN_TIMEOUT_S:
                return []
            plan.asked_at_s, plan.asked_version = None, -1  # it was lost: the same is asked again
        if self._is_idle():
            return []
        is_soon_done = False
        if plan.touched and not plan.checking and now >= plan.checked_at_s + CHECK_INTERVAL_S:
            plan.checking, plan.touched, plan.checked_at_s = plan.touched, {}, now
            is_soon_done = sum(map(self._num_predicted, plan.checking)) <= CHECK_GROUPS
        if is_soon_done or is_tick:
            self._check(now)
        if self._by_prediction and now >= plan.flows_seen_s + LEISURE_S:
            plan.flows_seen_s = now
            nodes = self._state.nodes.values()
            plan.has_chance |= is_outrun(nodes, self._groups.newcomers(now))
            plan.has_chance |= any(is_undecoded(self._state, node) for node in nodes)
        if now < min(self._asking_times(), default=now + 1):
            return []
        return [self._question(now)]

    @property
    def _interval_s(self) -> float:
        return SIZING_INTERVAL_S if self._demand else WAITING_INTERVAL_S

    def _is_idle(self) -> bool:
        """There is nothing to ask. Without nodes there is, where they can come."""
        if self._demand:
            return not (self._state.groups or self._state.asked)
        return not (self._state.nodes and self._state.groups)

    def _note_who_waits(self, now: float) -> None:
        """Where none waits there is nothing to look at, and no plan that could get old but for the sizes of pools."""
        plan, waiting_at = self._state.plan, self._state.waiting_at
        for names in (plan.touched, plan.checking):
            for name in [name for name in names if name not in waiting_at]:
                del names[name]
        if self._is_idle() if self._demand else not waiting_at:
            plan.stale_at_s = None
        elif plan.stale_at_s is None:
            plan.stale_at_s = now + self._interval_s

    def accept(self, message: Plan) -> bool:
        """Whether to apply this plan: any that is newer than the last one applied, since applying repairs it.

        One of a version that was never asked for answers a question that Redis has lost: were it taken for the newest,
        the answers to all questions that are asked from now on would be older.
        """
        plan = self._state.plan
        if not plan.applied_version < message.version <= plan.version:
            return False
        plan.applied_version = message.version
        if message.version == plan.asked_version:
            plan.asked_at_s = None
        return True

    def note_applied(self, journal: Journal, now: float) -> None:
        """A plan has been applied: it knows the work that it has moved, and what is late all the same is no news."""
        plan = self._state.plan
        journal.work.clear()
        plan.touched.clear()
        plan.checking.clear()
        plan.checked_at_s = now
        self._lateness.begin_anew()

    def _check(self, now: float) -> None:
        """Find out which groups are predicted to start too late, at the nodes that have changed: some of them, if many.

        Where the last plan has left a group late, more of that is no reason for haste.
        """
        plan = self._state.plan
        num_looked = 0
        while plan.checking and num_looked < CHECK_GROUPS:
            name = next(iter(plan.checking))
            del plan.checking[name]
            num_looked += self._num_predicted(name)
            found = self._lateness.look(self._state.nodes[name], now)
            if found.is_news:
                plan.version += 1
            elif found.is_late:
                plan.has_chance = True

    def _num_predicted(self, name: str) -> int:
        return min(len(self._state.nodes[name].queue), FORECAST_GROUPS)

    def _question(self, now: float) -> Effect:
        plan = self._state.plan
        groups = self._asked_groups()
        plan.version += plan.version == plan.asked_version  # asked by the clock: its answer is a new plan all the same
        plan.asked_at_s = plan.last_asked_s = now
        plan.asked_version = plan.version
        plan.num_asked_groups = len(self._state.groups)
        note_asked(self._state, [group.gid for group in groups if group.running])
        plan.has_chance, plan.has_idle, plan.stale_at_s = False, False, now + self._interval_s
        asked = {group.gid for group in groups}
        queues = {
            node.node: [gid for gid in node.queue if gid in asked and self._has_place(gid)]
            for node in self._state.nodes.values()
            if node.queue
        }
        loads = sorted((self._groups.load(group, now) for group in groups), key=lambda load: load.deadline_s)
        arrivals = self._demand.expected(now) if self._demand else []
        came_s = self._demand.came_s if self._demand else 0.0
        request = PlanRequest(
            version=plan.version,
            groups=loads,
            queues=queues,
            arrivals=arrivals,
            came_s=came_s,
            interruptions=interruptions(self._state, self._groups, now) if self._has_interruptions else [],
            newcomers=self._groups.newcomers(now) if self._by_prediction else [],
            awaits=[ModelLoad(node.node, node.awaits) for node in self._state.nodes.values() if node.awaits],
        )
        return Send(streams.SCHEDULER, request)

    def _has_place(self, gid: str) -> bool:
        """Whether the plan is to start from where the group stands: QLM has a place for a new one to look for."""
        group = self._state.groups[gid]
        return not self._by_prediction or group.is_planned or bool(group.running) or bool(group.kv_at)

    def _asked_groups(self) -> list[Group]:
        """All that run, since a plan has to count with them, and those that are due first: there is room for some."""
        running = [group for group in self._state.groups.values() if group.running]
        waiting = (group for group in self._state.groups.values() if not group.running)
        num_left = max(MAX_PLANNED_GROUPS - len(running), MAX_PLANNED_GROUPS // 2)
        return [*running, *heapq.nsmallest(num_left, waiting, key=lambda group: group.start_by_s)]

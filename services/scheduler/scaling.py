"""How many nodes of each pool shall run: grown at once where the promises need it, shrunk when they have not for long.

What they need now is worked out with a plan (`sizing`). A pool grows to that; it shrinks to the most that was needed
within ``down_cooldown_s``. So each node that is started stays for that long at least, whatever the load does meanwhile:
pools cannot flap. With no request left, and none come of late, nothing is asked, and nothing is needed.

What is needed only because others might come was last needed when the last of them came: a pool is empty
``down_cooldown_s`` after its last work, not after the end of the time for which more of it was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from shared.bus import streams
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.messages.nodes.nodes import Heartbeat, NodeState, Scale, Scaled, begun_with
from shared.messages.nodes.placement import PoolState
from shared.service.core import Effect, Send

SIZING_INTERVAL_S = 2.0  # sizes are worked out with a plan at most this often
QUIET_S = 15.0  # nothing is needed where no request has been here for so long; a question every 5 s tells
REPEAT_S = 10.0  # the provider is told again this often
LEARNT_STARTS = 4  # of which `Pool.start_s` is about the mean


class Pool(msgspec.Struct):
    """What the scheduler knows of one pool."""

    wanted: int
    """Nodes that shall run."""
    start_s: float
    """From the wish for a node until it has its first model: as configured, then as measured."""
    needs: list[tuple[float, int]] = []
    """(Time, nodes needed then) of the last ``down_cooldown_s``, without those that a later one exceeds."""
    changed_s: float | None = None
    """When ``wanted`` changed last."""
    told_s: float | None = None
    """When the provider was told last."""
    starting_s: dict[str, float] = {}
    """Nodes that are wanted but have not served yet: since when."""
    num_started: int = 0
    known: NodeState | None = None
    """The node of the pool that was heard last: what the next one will be like."""
    num_nodes: int = 0
    """As the provider told last."""
    error: str = ""
    num_grown: int = 0
    """Times that it has grown;"""
    num_shrunk: int = 0
    """that it has shrunk;"""
    num_errors: int = 0
    """and that the provider could not make it as it should be."""


class ScalingState(msgspec.Struct):
    """All pools."""

    pools: dict[str, Pool] = {}
    active_s: float = 0.0
    """When a request was last known to be here, or to have come."""
    sized_s: float = 0.0
    """When sizes were last asked for."""


class Scaling:
    """Owns `ScalingState`. Without a provider there are no pools for it: others start and stop their nodes."""

    def __init__(
        self, state: ScalingState, pools: Iterable[NodePool], options: ScalingOptions, engine: EngineOptions
    ) -> None:
        self._state = state
        self._specs = {pool.name: pool for pool in pools} if options.provider != "none" else {}
        self._options = options
        self._engine = engine
        known = state.pools
        state.pools = {
            name: known.get(name) or Pool(spec.min_nodes, spec.start_s) for name, spec in self._specs.items()
        }
        for name, pool in state.pools.items():  # the limits may be others now than when the state was written
            pool.wanted = min(max(pool.wanted, self._specs[name].min_nodes), self._specs[name].max_nodes)

    @property
    def wake_at(self) -> float | None:
        """When the provider is to be told again, or a pool shrinks though no plan is asked for; None without pools."""
        pools = self._state.pools.items()
        return min((min(_tells_s(pool), self._shrinks_s(name, pool)) for name, pool in pools), default=None)

    def _shrinks_s(self, name: str, pool: Pool) -> float:
        """When `tick` will make it smaller, if nothing is heard before."""
        if pool.wanted == self._specs[name].min_nodes:
            return inf
        needed_s = max((at for at, number in pool.needs if number >= pool.wanted), default=0.0)
        settled_s = 0.0 if pool.changed_s is None else pool.changed_s + self._options.up_cooldown_s
        return max(needed_s + self._options.down_cooldown_s, self._state.active_s + QUIET_S, settled_s)

    # --- what is known --------------------------------------------------------------------------------------------

    def hear(self, beat: Heartbeat, state: NodeState, now: float) -> None:
        """A node is there. If it is of a pool and has its first model, its start is over."""
        if beat.num_running or beat.num_waiting:
            self._state.active_s = now
        name = self.pool_of(beat.node)
        if name is None or not beat.model:
            return
        pool = self._state.pools[name]
        pool.known = state
        since_s = pool.starting_s.pop(beat.node, None)
        if since_s is not None:
            pool.num_started += 1
            pool.start_s += (now - since_s - pool.start_s) / min(pool.num_started, LEARNT_STARTS)

    def lose(self, node: str, now: float) -> None:
        """A node is gone; one that is wanted is started again."""
        name = self.pool_of(node)
        if name is not None and not self.is_leaving(node):
            self._state.pools[name].starting_s[node] = now

    def is_leaving(self, node: str) -> bool:
        """Whether it is one too many of its pool: it hands its work back and stops."""
        name = self.pool_of(node)
        if name is None:
            return False
        ordinal = self._specs[name].ordinal(node)
        return ordinal is not None and ordinal >= self._state.pools[name].wanted

    def pool_of(self, node: str) -> str | None:
        """Name of the node's pool; None where it has none that is scaled here."""
        return next((name for name, spec in self._specs.items() if spec.ordinal(node) is not None), None)

    # --- what is asked --------------------------------------------------------------------------------------------

    def ask(self, live: Mapping[str, NodeState], active_s: float, now: float) -> list[PoolState]:
        """A question for a plan has come: the pools, if their sizes are to be worked out with it.

        ``active_s`` is when a request was last here, or came.
        """
        self._state.active_s = max(self._state.active_s, active_s)
        if live and now < self._state.sized_s + SIZING_INTERVAL_S:
            return []
        self._state.sized_s = now
        return [self._describe(self._specs[name], pool, live, now) for name, pool in self._state.pools.items()]

    def _describe(self, spec: NodePool, pool: Pool, live: Mapping[str, NodeState], now: float) -> PoolState:
        names = [f"{spec.name}-{ordinal}" for ordinal in range(pool.wanted)]
        fresh = pool.known or NodeState(
            "",
            "",
            device=spec.device,
            max_num_seqs=self._engine.max_num_seqs,
            step_tokens=self._engine.step_tokens,
            phases=begun_with(spec.phases),
        )
        return PoolState(
            pool=spec.name,
            min_nodes=spec.min_nodes,
            max_nodes=spec.max_nodes,
            ready_s=[0.0 if name in live else self._left_s(pool, name, now) for name in names],
            start_s=pool.start_s,
            fresh=msgspec.structs.replace(fresh, node=f"{spec.name}-{pool.wanted}", model=""),
        )

    def _left_s(self, pool: Pool, node: str, now: float) -> float:
        """Of its start. Nothing is known of one that takes longer than expected: it may as well have begun now."""
        left_s = pool.starting_s.get(node, now) + pool.start_s - now
        return left_s if left_s > 0 else pool.start_s

    # --- what is decided ------------------------------------------------------------------------------------------

    def judge(self, needed: Mapping[str, int], now: float) -> list[Effect]:
        """What the promises need by now, of the pools that were asked for."""
        at = self._state.active_s
        for name, number in needed.items():
            if name in self._state.pools:
                self._need(self._state.pools[name], self._specs[name], number, at, now)
        return self._tell(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        if now >= self._state.active_s + QUIET_S:
            for name, pool in self._state.pools.items():
                self._need(pool, self._specs[name], self._specs[name].min_nodes, now, now)
        return self._tell(now)

    def told(self, message: Scaled) -> None:
        """The provider has tried."""
        pool = self._state.pools.get(message.pool)
        if pool is not None:
            pool.num_nodes, pool.error = message.num_nodes, message.error
            pool.num_errors += bool(message.error)

    def _need(self, pool: Pool, spec: NodePool, number: int, at: float, now: float) -> None:
        cooldown_s = self._options.down_cooldown_s
        if at + cooldown_s <= now:  # they came too long ago to wait for more of them
            at, number = now, spec.min_nodes
        number = min(max(number, spec.min_nodes), spec.max_nodes)
        if not pool.needs:
            pool.needs = [(now, pool.wanted)]  # what runs when the first is heard of was needed until then
        while pool.needs and pool.needs[-1][1] <= number:
            pool.needs.pop()
        pool.needs = [*(need for need in pool.needs if need[0] + cooldown_s > now), (at, number)]
        # those that a cooldown has kept from being started are no reason to start them later
        target = number if number > pool.wanted else min(pool.wanted, pool.needs[0][1])
        is_settled = pool.changed_s is None or now >= pool.changed_s + self._options.up_cooldown_s
        if target != pool.wanted and (is_settled or not pool.wanted):
            self._change(pool, spec, target, now)

    def _change(self, pool: Pool, spec: NodePool, target: int, now: float) -> None:
        pool.num_grown += target > pool.wanted
        pool.num_shrunk += target < pool.wanted
        names = [f"{spec.name}-{ordinal}" for ordinal in range(target)]
        for name in names[pool.wanted :]:
            pool.starting_s[name] = now
        pool.starting_s = {name: since_s for name, since_s in pool.starting_s.items() if name in names}
        pool.wanted, pool.changed_s, pool.told_s = target, now, None

    def _tell(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for name, pool in self._state.pools.items():
            if now >= _tells_s(pool):
                pool.told_s = now
                scale = Scale(pool=name, num_nodes=pool.wanted)
                effects.append(Send(streams.PROVIDER, scale, max_entries=streams.MAX_PROVIDER_INBOX))
        return effects

    def describe(self) -> dict[str, object]:
        """The pools, for operators."""
        return {
            name: {
                "wanted": pool.wanted,
                "num_nodes": pool.num_nodes,
                "starting": list(pool.starting_s),
                "start_s": round(pool.start_s, 3),
                "error": pool.error,
            }
            for name, pool in self._state.pools.items()
        }


def _tells_s(pool: Pool) -> float:
    """When the provider is to be told again."""
    return 0.0 if pool.told_s is None else pool.told_s + REPEAT_S

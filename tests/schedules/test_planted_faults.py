"""The judge is worth something: defects that somebody could make are found within a few seeds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from gpu_node.agent.decisions.actions import Publish
from services.queue_manager.core import QueueManagerCore
from shared.messages.message import Message
from shared.messages.messages import AnyMessage
from shared.messages.requests.inventories import GatewayInventory, NodeInventory
from shared.messages.requests.requests import Abort, Cancel, Evicted, Finished, Resubmit, Tokens
from shared.service.core import Drop, Effect, Send
from tests.schedules.cluster import Cluster
from tests.schedules.gateway import GatewayProcess
from tests.schedules.judge import Looks
from tests.schedules.keyspace import EntryId
from tests.schedules.ledger import BrokenPromiseError
from tests.schedules.node import NodeProcess
from tests.schedules.process import Armed
from tests.schedules.redis_model import RedisModel
from tests.schedules.schedule import run
from tests.schedules.setup import Kind, Planned, Setup, drawn_setup
from tests.schedules.transcript import Transcript

pytestmark = pytest.mark.slow

MAX_SEEDS = 600


class ForgetfulNode(NodeProcess):
    """Does not tell the queue manager how requests end."""

    def _told(self, publish: Publish) -> list[Finished | Evicted]:
        return [message for message in super()._told(publish) if not isinstance(message, Finished)]


class DeafNode(NodeProcess):
    """Goes on with what it is told to stop."""

    def _hear(self, event: Any) -> None:
        if not isinstance(event, Abort):
            super()._hear(event)


class ImpatientNode(NodeProcess):
    """Takes a step for published though no answer came."""

    async def _publish(self, publish: Publish) -> None:
        tokens = [(f"treadle:tokens:{gateway}", message) for gateway, message in publish.tokens.items()]
        try:
            await self.ask("publish", lambda: self.redis.publish(tokens, [], self._told(publish)))
        except Exception:
            self.note("never mind")


class CredulousGateway(GatewayProcess):
    """Takes tokens as they come, whether it has them or not."""

    async def _take(self, message: Message) -> None:
        if isinstance(message, Tokens):
            for chunk in message.chunks:
                request = self.inflight.get(chunk.request_id)
                outputs = request.generation.outputs if request is not None else []
                length = len(outputs[chunk.choice].token_ids) if outputs else 0
                await super()._take(Tokens(node="", chunks=[msgspec.structs.replace(chunk, index=length)]))
        else:
            await super()._take(message)


class LazyGateway(GatewayProcess):
    """Does not submit again what was lost."""

    async def _take(self, message: Message) -> None:
        if not isinstance(message, Resubmit):
            await super()._take(message)


class SilentGateway(GatewayProcess):
    """Does not say its inventory to another Redis."""

    async def _say_inventory(self, *, is_gone: bool = False) -> None:
        return


class QueueManager(QueueManagerCore):
    """One with a defect."""

    def __init__(self, setup: Any) -> None:
        super().__init__(setup.config)


class IgnoresNodes(QueueManager):
    """Does not care what nodes have."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """All but inventories."""
        return [] if isinstance(message, NodeInventory) else super().handle(message, now)


class IgnoresGateways(QueueManager):
    """Does not care what gateways have."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """All but inventories."""
        return [] if isinstance(message, GatewayInventory) else super().handle(message, now)


class KeepsRunning(QueueManager):
    """Does not tell nodes whose client has left."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """All but aborts of cancelled requests."""
        effects = super().handle(message, now)
        if isinstance(message, Cancel):
            return [one for one in effects if not (isinstance(one, Send) and isinstance(one.message, Abort))]
        return effects


class KeepsStreams(QueueManager):
    """Leaves the streams of closed groups behind."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """All but drops."""
        return [one for one in super().handle(message, now) if not isinstance(one, Drop)]


class KeepsTooLittle(QueueManager):
    """Writes its state down as it was the last time."""

    _last: bytes | None = None

    def snapshot(self) -> bytes:
        """One that is out of date."""
        found, self._last = self._last, super().snapshot()
        return found or self._last


ANY: tuple[Kind, ...] = ("kill", "process fault", "freeze", "redis restart", "engine crash")
CUT: tuple[Kind, ...] = ("process fault",)
LOST: tuple[Kind, ...] = ("tail lost",)


@pytest.mark.parametrize(
    ("kinds", "makers", "words"),
    [
        (ANY, {"make_node": ForgetfulNode}, "gateways want / queue manager knows: set()"),
        (ANY, {"make_node": DeafNode}, "computes / is believed to"),
        (CUT, {"make_node": ImpatientNode}, "there is no agreement"),
        (CUT, {"make_gateway": CredulousGateway}, "choice 0 is"),
        (ANY, {"make_gateway": LazyGateway}, "still not answered"),
        (ANY, {"make_queue_manager": KeepsRunning}, "computes / is believed to"),
        (ANY, {"make_queue_manager": KeepsStreams}, "streams of groups / groups"),
        (ANY, {"make_queue_manager": KeepsTooLittle}, "there is no agreement"),
        (LOST, {"make_gateway": SilentGateway}, "gateways want / queue manager knows"),
        (LOST, {"make_queue_manager": IgnoresNodes}, "is believed to"),
        (LOST, {"make_queue_manager": IgnoresGateways}, "gateways want / queue manager knows"),
    ],
    ids=lambda value: next(iter(value.values())).__name__ if isinstance(value, dict) else "",
)
def test_a_planted_defect_is_found(kinds: tuple[Kind, ...], makers: dict[str, Any], words: str) -> None:
    for seed in range(MAX_SEEDS):
        cluster = Cluster(drawn_setup(seed, kinds), transcript=Transcript(is_kept=False), look=Looks(), **makers)
        try:
            run(cluster)
        except BrokenPromiseError as error:
            if words in str(error):
                return
    pytest.fail(f"not found within {MAX_SEEDS} seeds")


@pytest.mark.parametrize("kinds", [ANY, LOST])
def test_without_a_defect_nothing_is_found(kinds: tuple[Kind, ...]) -> None:
    for seed in range(MAX_SEEDS // 4):
        run(Cluster(drawn_setup(seed, kinds), transcript=Transcript(is_kept=False), look=Looks()))


class ForgivingRedis(RedisModel):
    """Takes commits and snapshots of leaders that go by what it has lost."""

    def _not_behind(self, service: str, committed: EntryId) -> None:
        pass


def forgetful(seed: int) -> Setup:
    """Another Redis answers when a service commits or writes down what it knows, and lacks the last transactions."""
    chance = Random(seed)
    faults = tuple(
        Planned(
            at_s=1.0 + 3.0 * chance.random(),
            kind="process fault",
            victim=0,
            seconds=0.0,
            share=0.0,
            step_s=0.0,
            armed=Armed("tail lost", "service", chance.choice(("commit", "snapshot")), chance.randrange(4)),
        )
        for _ in range(4)
    )
    return replace(drawn_setup(seed), faults=faults)


def judged(make_redis: type[RedisModel], num_seeds: int) -> str:
    """What the first broken promise is."""
    for seed in range(num_seeds):
        setup = forgetful(seed)
        try:
            run(Cluster(setup, transcript=Transcript(is_kept=False), look=Looks(), make_redis=make_redis))
        except BrokenPromiseError as error:
            return str(error)
    return ""


def test_effects_that_were_lost_and_count_as_sent_are_found() -> None:
    assert "streams of groups / groups" in judged(ForgivingRedis, MAX_SEEDS)


def test_services_go_by_what_redis_has() -> None:
    assert judged(RedisModel, MAX_SEEDS // 4) == ""

"""The judge is worth something: defects that somebody could make are found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import pytest

from gpu_node.agent.actions import Publish
from services.queue_manager.core import QueueManagerCore
from shared.core import Drop, Effect, Send
from shared.inventories import GatewayInventory, NodeInventory
from shared.message import Message
from shared.messages import AnyMessage
from shared.requests import Abort, Cancel, Evicted, Finished, Resubmit, Tokens
from tests.schedules.agenda import sleep
from tests.schedules.cluster import Cluster
from tests.schedules.gateway import GatewayProcess
from tests.schedules.judge import Looks
from tests.schedules.ledger import BrokenPromiseError
from tests.schedules.node import NodeProcess
from tests.schedules.reader import Reader
from tests.schedules.schedule import run
from tests.schedules.setup import Kind, drawn_setup
from tests.schedules.transcript import Transcript

MAX_SEEDS = 300


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
        self.life_of_step = publish
        tokens = [(f"treadle:tokens:{gateway}", message) for gateway, message in publish.tokens.items()]
        try:
            await self.ask("publish", lambda: self.redis.publish(tokens, [], self._told(publish)))
        except Exception:
            self.note("never mind")


class CarelessNode(NodeProcess):
    """Goes on after a pull of which it does not know whether it was one."""

    async def _be_over(self, why: str) -> NoReturn:
        if why == "unclear whether it has pulled":
            await sleep(1e9)  # the task is over, and nobody pulls any more
        await super()._be_over(why)


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

    async def _say_inventory(self) -> None:
        return


class BlindReader(Reader):
    """Does not look whether what it has read is still there."""

    def put_back(self) -> None:
        """It stays where it is."""


class BlindGateway(GatewayProcess):
    """Reads on where it was in a stream that has lost its end."""

    def begin(self) -> None:
        """As always, with another reader."""
        super().begin()
        self._reader = BlindReader(self, self._reader.stream, 0.2)


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


class ForgetsItself(QueueManager):
    """Restores less than it has kept."""

    def restore(self, state: bytes) -> None:
        """All but who is alive."""
        super().restore(state)
        self.state.gateways.heard_s.clear()


ANY: tuple[Kind, ...] = ("kill", "process fault", "freeze", "redis restart", "engine crash")
LOST: tuple[Kind, ...] = ("tail lost",)


def broken_promise(kinds: tuple[Kind, ...], **makers: Callable[..., Any]) -> str:
    """What the judge says of the first schedule that it finds fault with; empty where there is none."""
    for seed in range(MAX_SEEDS):
        cluster = Cluster(drawn_setup(seed, kinds), transcript=Transcript(is_kept=False), look=Looks(), **makers)
        try:
            run(cluster)
        except (BrokenPromiseError, AssertionError) as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("kinds", "makers", "words"),
    [
        (ANY, {"make_node": ForgetfulNode}, "queue manager knows"),
        (ANY, {"make_node": DeafNode}, "computes / is believed to"),
        (ANY, {"make_node": CarelessNode}, ""),
        (ANY, {"make_node": ImpatientNode}, ""),
        (ANY, {"make_gateway": CredulousGateway}, "choice"),
        (ANY, {"make_gateway": LazyGateway}, ""),
        (ANY, {"make_queue_manager": KeepsRunning}, "computes / is believed to"),
        (ANY, {"make_queue_manager": KeepsStreams}, "streams of groups"),
        (ANY, {"make_queue_manager": ForgetsItself}, ""),
        (LOST, {"make_gateway": SilentGateway}, "gateways want"),
        (LOST, {"make_gateway": BlindGateway}, ""),
        (LOST, {"make_queue_manager": IgnoresNodes}, "is believed to"),
        (LOST, {"make_queue_manager": IgnoresGateways}, "gateways want"),
    ],
    ids=lambda value: next(iter(value.values())).__name__ if isinstance(value, dict) else "",
)
def test_a_planted_defect_is_found(kinds: tuple[Kind, ...], makers: dict[str, Any], words: str) -> None:
    what = broken_promise(kinds, **makers)
    assert what
    assert words in what

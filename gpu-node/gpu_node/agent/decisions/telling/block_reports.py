"""What the KV manager is told of this node's cached blocks: asked of the engine now and then, one answer at a time.

Nothing here is repeated: what is lost leaves a gap in the numbers, and the KV manager asks for all of it again.
"""

from __future__ import annotations

from gpu_node.agent.decisions.actions import AgentAction, SayBlocks, Tell
from gpu_node.engine.process.protocol.protocol import AskBlocks, BlocksTold
from shared.messages.memory.blocks import BlockNews

MAX_AT_A_TIME = 4
"""Answers that follow one another: so no node fills the KV manager's inbox when it tells of all that it has."""


class BlockReports:
    """Of one epoch."""

    def __init__(self, node: str, epoch: str) -> None:
        self._node = node
        self._epoch = epoch
        self._num_told = 0
        self._num_to_ask = 0
        self._is_asking = False
        self._is_again = False

    def ask(self, *, is_again: bool = False) -> list[AgentAction]:
        """It is time; ``is_again``: the KV manager has missed something. An engine in a long step is asked once."""
        self._is_again |= is_again
        if self._is_asking:
            return []
        self._num_to_ask = MAX_AT_A_TIME
        return self._ask()

    def _ask(self) -> list[AgentAction]:
        self._is_asking = True
        self._num_to_ask -= 1
        ask = AskBlocks(self._is_again)
        self._is_again = False
        return [Tell(ask)]

    def told(self, event: BlocksTold) -> list[AgentAction]:
        """Pass it on, and ask for the rest."""
        self._is_asking = False
        actions: list[AgentAction] = []
        if event.is_new or event.tiers:
            self._num_told += 1
            news = BlockNews(
                node=self._node,
                epoch=self._epoch,
                number=self._num_told,
                model=event.model,
                is_new=event.is_new,
                tiers=event.tiers,
            )
            actions.append(SayBlocks(news))
        return [*actions, *(self._ask() if event.has_more and self._num_to_ask else [])]

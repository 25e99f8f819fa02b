"""Which node has which blocks, by name and tier; who has the beginning of a prompt.

Soft: nothing of it is in a snapshot. What is not certain (a number was missed, an epoch is new, this process has just
begun) is forgotten, and its node is asked to tell all again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.kv_manager.block_table import BlockTable
from shared.messages.memory.blocks import BlockNews, WarmNode
from shared.messages.memory.tiers import Tier

TIERS = [int(tier) for tier in Tier]  # nearest first, as plain numbers: they are counted in every look-up
NEAREST = [0, *(min(tier for tier in TIERS if tiers & tier) for tiers in range(1, 1 << len(TIERS)))]
"""By the sum of the tiers that a block is in."""
ASK_AGAIN_S = 5.0  # a node that does not answer by then is asked once more


@dataclass(slots=True)
class _Told:
    """What an epoch of a node has told."""

    epoch: str
    number: int = 0
    """Of what it told last; 0: nothing yet."""
    tables: dict[str, BlockTable] = field(default_factory=dict)
    """By model, from when all of it was told."""
    is_missed: bool = True
    """Something was, since all was told."""
    asked_s: float | None = None


class BlockIndex:
    """Of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Told] = {}
        self.num_missed = 0
        """Times that the number of what a node told did not follow the one before."""

    @property
    def num_blocks(self) -> int:
        """Each at each node that has it."""
        return sum(len(table) for told in self._nodes.values() for table in told.tables.values())

    @property
    def num_bytes(self) -> int:
        """Memory of the tables."""
        return sum(table.num_bytes for told in self._nodes.values() for table in told.tables.values())

    def num_blocks_at(self, node: str) -> int:
        """That it has told of."""
        return sum(map(len, self._nodes[node].tables.values())) if node in self._nodes else 0

    def hear(self, news: BlockNews) -> None:
        """O(names)."""
        told = self._of(news.node, news.epoch)
        if news.number != told.number + 1:
            if told.number:
                self.num_missed += 1
            told.tables.clear()
            told.is_missed, told.asked_s = True, None
        told.number = news.number
        if news.is_new:
            if news.number == 1 or told.asked_s is not None:
                told.is_missed = False
            told.tables[news.model] = BlockTable()
        table = told.tables.get(news.model)
        if table is None:
            return  # until all is told
        for tier in news.tiers:
            for name in tier.gone:
                table.discard(name, tier.tier)
            for name in tier.came:
                table.add(name, tier.tier)

    def must_ask(self, node: str, epoch: str, now: float) -> bool:
        """Whether a node that is alive shall tell all again; once in `ASK_AGAIN_S`."""
        told = self._of(node, epoch)
        if not told.is_missed or (told.asked_s is not None and now < told.asked_s + ASK_AGAIN_S):
            return False
        told.asked_s = now
        return True

    def _of(self, node: str, epoch: str) -> _Told:
        told = self._nodes.get(node)
        if told is None or told.epoch != epoch:
            told = self._nodes[node] = _Told(epoch)
        return told

    def forget(self, node: str) -> None:
        """It is gone."""
        self._nodes.pop(node, None)

    def find(self, model: str, names: Sequence[int]) -> list[WarmNode]:
        """Nodes that have the first of these beginnings, and how far they have them. O(nodes + names found)."""
        found = []
        for node, told in self._nodes.items():
            table = told.tables.get(model)
            if table is None:
                continue
            nearest = [NEAREST[tiers] for tiers in table.leading(names)]
            if nearest:
                found.append(WarmNode(node, *map(nearest.count, TIERS)))
        return found

"""What an engine without a device has cached of prompts: blocks by name, with what their content is worth.

A block's content says from which tokens it was made, and with which weights. Who begins with another one draws wrong
tokens, which clients notice.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from gpu_node.engine.process.protocol.protocol import NO_IMAGE, BlocksTold, ImageFile
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.prefixes.prefixes import prompt_prefix
from shared.messages.requests.payload import Payload

BLOCK_SIZE = 16
FORGETS = 0.05
"""Chance of a step that others need the room: a block goes to host memory, or for good."""


@lru_cache(maxsize=64)
def _names(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    prefix = prompt_prefix(token_ids, BLOCK_SIZE)
    assert prefix is None or prefix.every_tokens == BLOCK_SIZE, "prompts are short enough for a name a block"
    return tuple(prefix.names) if prefix is not None else ()


def names_of(token_ids: list[int]) -> tuple[int, ...]:
    """Of the whole blocks of a prompt, short of its last token."""
    return _names(tuple(token_ids))


@dataclass(slots=True)
class CachedPrefixes:
    """Of one engine and its current model."""

    kv_format: str
    model: str = ""
    _blocks: dict[int, tuple[str, Tier]] = field(default_factory=dict)
    """By name: content, and where it is."""
    _told: set[tuple[int, Tier]] = field(default_factory=set)
    _is_new: bool = True
    """Nothing has been told of this model."""

    def load(self, model: str) -> None:
        """Another model, or the same with other weights: what was cached is of no use."""
        self.model = model
        self._blocks, self._told, self._is_new = {}, set(), True

    def _right(self, name: int) -> str:
        return f"{name} of {self.model} by {self.kv_format}"

    # --- of this engine's requests --------------------------------------------------------------------------------

    def found(self, token_ids: list[int]) -> tuple[int, int]:
        """Tokens found on the device, from the first on; and those there or in host memory."""
        names = names_of(token_ids)
        near = next((place for place, name in enumerate(names) if name not in self._blocks), len(names))
        tiers = [self._blocks[name][1] for name in names[:near]]
        on_device = next((place for place, tier in enumerate(tiers) if tier is not Tier.DEVICE), near)
        return on_device * BLOCK_SIZE, near * BLOCK_SIZE

    def is_right(self, token_ids: list[int]) -> bool:
        """Whether what a prompt begins with is what computing would have made."""
        found = names_of(token_ids)[: self.found(token_ids)[1] // BLOCK_SIZE]
        return all(self._blocks[name][0] == self._right(name) for name in found)

    def compute(self, token_ids: list[int]) -> None:
        """All of a prompt is on the device now."""
        for name in names_of(token_ids):
            content, _ = self._blocks.get(name, (self._right(name), Tier.DEVICE))
            self._blocks[name] = content, Tier.DEVICE

    def make_room(self, chance: Random) -> None:
        """Now and then a block has to go."""
        if self._blocks and chance.random() < FORGETS:
            name = chance.choice(list(self._blocks))
            content, tier = self._blocks[name]
            if tier is Tier.DEVICE and chance.random() < 0.5:
                self._blocks[name] = content, Tier.HOST
            else:
                del self._blocks[name]

    # --- between engines --------------------------------------------------------------------------------------------

    def copy(self, ask: PrefixAsk) -> ImageFile:
        """As `PrefixExchange.copy`; `NO_IMAGE` where nothing is given."""
        if ask.model != self.model or ask.kv_format != self.kv_format:
            return NO_IMAGE
        return self._copied(ask)

    def _copied(self, ask: PrefixAsk) -> ImageFile:
        first = ask.from_token // BLOCK_SIZE
        names = names_of(ask.token_ids)[first : self.found(ask.token_ids)[1] // BLOCK_SIZE]
        if not names:
            return NO_IMAGE
        text = repr((ask.kv_format, ask.model, first, [(name, self._blocks[name][0]) for name in names]))
        return ImageFile(text, len(names) * BLOCK_SIZE)

    def take_in(self, payload: Payload, file: ImageFile) -> int | None:
        """As `PrefixExchange.take_in`: tokens that are new here; None where it is refused."""
        kv_format, model, first, blocks = ast.literal_eval(file.path)
        names = names_of(payload.prompt_token_ids)[first : first + len(blocks)]
        if (kv_format, model) != (self.kv_format, payload.model) or model != self.model:
            return None
        if names != tuple(name for name, _ in blocks):
            return None
        if self.found(payload.prompt_token_ids)[0] < first * BLOCK_SIZE:
            return None
        new = [(name, content) for name, content in blocks if name not in self._blocks]
        for name, content in new:
            self._blocks[name] = content, Tier.DEVICE
        return len(new) * BLOCK_SIZE

    # --- for the KV manager -----------------------------------------------------------------------------------------

    def changes(self, *, is_again: bool) -> BlocksTold:
        """What has come and gone since it was told last."""
        is_new = is_again or self._is_new
        told = set() if is_new else self._told
        here = {(name, tier) for name, (_, tier) in self._blocks.items()}
        news = []
        for tier in (Tier.DEVICE, Tier.HOST):
            came = sorted(name for name, where in here - told if where is tier)
            gone = sorted(name for name, where in told - here if where is tier)
            news += [TierNews(int(tier), came, gone)] if came or gone else []
        self._told, self._is_new = here, False
        return BlocksTold(self.model, is_new, news, has_more=False)

"""Where the blocks of a prefix are: on the device, else in host memory. One look-up, by chained digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_node.engine.border.plan import BlockSwap
from gpu_node.engine.memory.prefix import Prefix, PrefixCache
from gpu_node.engine.memory.tiers.host_cache import HostCache


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block of a prefix."""

    token_ids: tuple[int, ...]
    device_block: int | None
    host_block: int | None
    """Only where the device has none."""


@dataclass(frozen=True, slots=True)
class BroughtIn:
    """More of a prefix than the device had, and the moves that bring it."""

    swaps: tuple[BlockSwap, ...] = ()
    num_tokens: int = 0
    """That it covers."""
    num_store_tokens: int = 0
    """Those of them that came to host memory from the store below it, and are used for the first time."""


class TierLookup:
    """Looks for the prefixes of one model, and never at a sequence's last token: its logits are wanted."""

    def __init__(self, device: PrefixCache, host: HostCache, block_size: int) -> None:
        self._device = device
        self._host = host
        self._block_size = block_size

    def behind(self, prefix: Prefix, num_blocks: int, token_ids: Sequence[int]) -> list[FoundBlock]:
        """Blocks of ``token_ids`` behind the first ``num_blocks``, which are ``prefix``, as far as they are found."""
        found = []
        size = self._block_size
        for end in range((num_blocks + 1) * size, len(token_ids), size):
            tokens = tuple(token_ids[end - size : end])
            prefix = self._device.extend(prefix, tokens)
            device_block = self._device.find(prefix)
            host_block = self._host.find(prefix) if device_block is None else None
            if device_block is None and host_block is None:
                break
            found.append(FoundBlock(tokens, device_block, host_block))
        return found

    def found(self, token_ids: Sequence[int], owner: str = "") -> list[FoundBlock]:
        """Blocks of ``token_ids``, from the first on, as far as they are found."""
        return self.behind(self._device.root_of(owner), 0, token_ids)

    def chain(self, token_ids: Sequence[int], owner: str = "") -> tuple[list[Prefix], int]:
        """All prefixes of ``token_ids``, and how many of them, from the first on, are found."""
        size, prefix = self._block_size, self._device.root_of(owner)
        chain: list[Prefix] = []
        num_found = 0
        for end in range(size, len(token_ids), size):
            prefix = self._device.extend(prefix, tuple(token_ids[end - size : end]))
            is_found = self._device.find(prefix) is not None or self._host.find(prefix) is not None
            num_found += int(is_found and num_found == len(chain))
            chain.append(prefix)
        return chain, num_found

    def touch_in_host(self, prefix: Prefix) -> None:
        """It is used, from its end on: what host memory gives up first is the end of a prefix."""
        here = prefix
        while here.parent is not None:
            self._host.touch(here)
            here = here.parent

"""Identity of a prefix: the chain of full blocks of token ids that leads to it.

The key and value of a token depend on every token before it, so a block can be reused only after the same whole prefix.
A digest finds a candidate fast, and names a prefix between nodes; equality is always decided by the token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from shared.messages.prefixes.prefixes import ROOT, chained_digest, root_of

Digest = Callable[[bytes, tuple[int, ...]], bytes]
"""Digest of a prefix from the digest of its parent and the token ids of its last block."""


class Heard(Protocol):
    """A listener that keeps up with what is where."""

    def __call__(self, digest: bytes, *, is_there: bool) -> None:
        """A prefix has appeared, or gone."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prefix:
    """A whole number of blocks of tokens. A linked list: prefixes with a common beginning share it."""

    parent: Prefix | None
    token_ids: tuple[int, ...]
    """Those of the last block; of the empty prefix, what tells its owner from others."""
    digest: bytes


def is_same(one: Prefix | None, other: Prefix | None) -> bool:
    """Whether both stand for the same token ids; digests are not looked at.

    O(1) for those of one `Chains`, since the walk ends where the two chains become one.
    """
    while one is not other:
        if one is None or other is None or one.token_ids != other.token_ids:
            return False
        one, other = one.parent, other.parent
    return True


def chain_of(prefix: Prefix) -> list[Prefix]:
    """Those that it goes on from, shortest first, and itself; without the empty one."""
    chain = []
    while prefix.parent is not None:
        chain.append(prefix)
        prefix = prefix.parent
    return chain[::-1]


def token_blocks(prefix: Prefix) -> list[tuple[int, ...]]:
    """The token ids of each of its blocks, first to last."""
    return [one.token_ids for one in chain_of(prefix)]


class Chains:
    """Makes prefixes, each once while it is used, so that equal ones are one object and `is_same` sees it at once.

    Where two have one digest, the newer one is known, and the other is made anew when it is wanted: that costs a walk.
    """

    def __init__(self, digest: Digest = chained_digest) -> None:
        self.root = Prefix(None, (), ROOT)
        self._roots: WeakValueDictionary[str, Prefix] = WeakValueDictionary({"": self.root})
        self._digest = digest
        self._known: WeakValueDictionary[bytes, Prefix] = WeakValueDictionary()

    def root_of(self, owner: str) -> Prefix:
        """The empty prefix of an owner (`owner_of`): nothing behind it is found by another. Any number may come."""
        root = self._roots.get(owner)
        if root is None:
            root = self._roots[owner] = Prefix(None, tuple(owner.encode()), root_of(owner))
        return root

    def extend(self, parent: Prefix, token_ids: tuple[int, ...]) -> Prefix:
        """``parent`` and one more block."""
        digest = self._digest(parent.digest, token_ids)
        known = self._known.get(digest)
        if known is not None and known.parent is parent and known.token_ids == token_ids:
            return known
        prefix = self._known[digest] = Prefix(parent, token_ids, digest)
        return prefix


def unheard(digest: bytes, *, is_there: bool) -> None:
    """No listener keeps up."""
    del digest, is_there


class PrefixCache:
    """Which block holds which prefix of a model, and where it is found again. A prefix has one block at most."""

    def __init__(self, chains: Chains, heard: Heard = unheard) -> None:
        """``heard`` is told of each prefix that can be found from now on, and of each that no longer can."""
        self._chains = chains
        self._heard = heard
        self._prefixes: dict[int, Prefix] = {}
        self._blocks: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def __contains__(self, block: int) -> bool:
        return block in self._prefixes

    def digests(self) -> Iterator[bytes]:
        """Of all prefixes that are found."""
        return iter(self._blocks)

    def prefix_of(self, block: int) -> Prefix | None:
        """The prefix that ends in ``block``; None if it is not offered."""
        return self._prefixes.get(block)

    @property
    def root(self) -> Prefix:
        """The empty prefix, as the model itself reads it."""
        return self._chains.root

    def root_of(self, owner: str) -> Prefix:
        """The empty prefix of an owner; ``""`` is the model itself."""
        return self._chains.root_of(owner)

    def extend(self, parent: Prefix, token_ids: tuple[int, ...]) -> Prefix:
        """``parent`` and one more block."""
        return self._chains.extend(parent, token_ids)

    def find(self, prefix: Prefix) -> int | None:
        """The block in which ``prefix`` ends; None if it is not there."""
        block = self._blocks.get(prefix.digest)
        return block if block is not None and is_same(self._prefixes[block], prefix) else None

    def match(self, token_ids: Sequence[int], block_size: int, owner: str = "") -> list[int]:
        """Blocks that hold the longest prefix of ``token_ids`` that is there, short of its last token."""
        blocks: list[int] = []
        prefix = self.root_of(owner)
        for end in range(block_size, len(token_ids), block_size):
            block = self.find(self.extend(prefix, tuple(token_ids[end - block_size : end])))
            if block is None:
                break
            blocks.append(block)
            prefix = self._prefixes[block]
        return blocks

    def offer(self, block: int, prefix: Prefix) -> Prefix:
        """Let ``prefix`` be found in ``block``; the prefix to go on from.

        Computed twice, it stays where it is. When two prefixes have one digest, the first keeps it and the other is
        just not offered.
        """
        other = self._blocks.get(prefix.digest)
        if other is None:
            self._prefixes[block] = prefix
            self._blocks[prefix.digest] = block
            self._heard(prefix.digest, is_there=True)
            return prefix
        content = self._prefixes[other]
        return content if is_same(content, prefix) else prefix

    def forget(self, block: int) -> None:
        """What ``block`` holds is lost."""
        digest = self._prefixes.pop(block).digest
        del self._blocks[digest]
        self._heard(digest, is_there=False)

    def check(self) -> None:
        """Assert that each digest leads to the block with that content."""
        offered = {prefix.digest: block for block, prefix in self._prefixes.items()}
        assert offered == self._blocks, "a digest leads to the block with that content"

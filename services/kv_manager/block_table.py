"""Names of blocks and the tiers that they are in: open addressing with linear probing (Knuth, TAOCP 3, §6.4, algorithm
L and, for what goes, algorithm R), in arrays of plain numbers.

9 bytes a place, and at least three of eight places are taken once a table has grown: 24 bytes a block at most, where a
dictionary takes a hundred. It is cut into parts by the last bits of a name, so that the one that grows is small.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

NUM_PARTS = 256
FIRST_PLACES = 8  # of a part; a power of two, as all sizes are
MOST_TAKEN = 0.75  # of a part's places; then it gets twice as many


class _Part:
    __slots__ = ("mask", "names", "num_taken", "tiers")

    def __init__(self, num_places: int) -> None:
        self.names = array("Q", bytes(8 * num_places))  # 0: the place is free
        self.tiers = bytearray(num_places)
        self.mask = num_places - 1
        self.num_taken = 0

    def place_of(self, name: int) -> int:
        """Where it is, or could be put."""
        names, mask = self.names, self.mask
        place = (name // NUM_PARTS) & mask
        while (found := names[place]) and found != name:
            place = (place + 1) & mask
        return place

    def remove(self, hole: int) -> None:
        """Free a place, and move up what would not be found behind it any more."""
        names, tiers, mask = self.names, self.tiers, self.mask
        place = hole
        while True:
            place = (place + 1) & mask
            name = names[place]
            if not name:
                break
            home = (name // NUM_PARTS) & mask
            if (place - home) & mask >= (place - hole) & mask:
                names[hole], tiers[hole] = name, tiers[place]
                hole = place
        names[hole], tiers[hole] = 0, 0
        self.num_taken -= 1


class BlockTable:
    """Of one model at one node. Names are numbers from 1 on (`shared.messages.prefixes.prefixes.name_of`)."""

    def __init__(self) -> None:
        self._parts = [_Part(FIRST_PLACES) for _ in range(NUM_PARTS)]

    def __len__(self) -> int:
        return sum(part.num_taken for part in self._parts)

    @property
    def num_bytes(self) -> int:
        """Memory of the places."""
        return sum(9 * (part.mask + 1) for part in self._parts)

    def tiers(self, name: int) -> int:
        """Sum of the bits of the tiers that it is in; 0 if in none."""
        part = self._parts[name % NUM_PARTS]
        return part.tiers[part.place_of(name)]

    def leading(self, names: Sequence[int]) -> list[int]:
        """The tiers of each of them, up to the first that is in none; in one loop, since every look-up is this."""
        found: list[int] = []
        parts = self._parts
        for name in names:
            part = parts[name % NUM_PARTS]
            held, mask = part.names, part.mask
            place = (name // NUM_PARTS) & mask
            while (there := held[place]) != name:
                if not there:
                    return found
                place = (place + 1) & mask
            found.append(part.tiers[place])
        return found

    def add(self, name: int, tier: int) -> None:
        """It has appeared in a tier."""
        part = self._parts[name % NUM_PARTS]
        place = part.place_of(name)
        if not part.names[place]:
            if part.num_taken >= MOST_TAKEN * (part.mask + 1):
                part = self._grow(name % NUM_PARTS)
                place = part.place_of(name)
            part.names[place] = name
            part.num_taken += 1
        part.tiers[place] |= tier

    def discard(self, name: int, tier: int) -> None:
        """It has gone from a tier, if it was there."""
        part = self._parts[name % NUM_PARTS]
        place = part.place_of(name)
        left = part.tiers[place] & ~tier
        if left or not part.names[place]:
            part.tiers[place] = left
        else:
            part.remove(place)

    def _grow(self, number: int) -> _Part:
        old = self._parts[number]
        part = self._parts[number] = _Part(2 * (old.mask + 1))
        for place, name in enumerate(old.names):
            if name:
                at = part.place_of(name)
                part.names[at], part.tiers[at] = name, old.tiers[place]
        part.num_taken = old.num_taken
        return part

"""Where KV memory goes at one moment: token states, and five kinds of what holds none (PagedAttention, §3.1, figure 2).

The paper's *reservation* is `reserved`, its *internal fragmentation* is `internal`, and its *external fragmentation and
others* is `rounding` + `stranded`, which lie inside and outside of what is allocated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """Slots of KV memory, every one counted once; or sums of such over steps."""

    states: int = 0
    """Hold keys and values of a token, those that the step computes included."""
    reserved: int = 0
    """Allocated, and a later token of the request will fill them."""
    internal: int = 0
    """Allocated, but the request ends before it fills them."""
    rounding: int = 0
    """Allocated beyond what was asked for, because the allocator has only certain sizes."""
    stranded: int = 0
    """Free, but of no use to the request that waits: too small, or cut off by the block size."""
    headroom: int = 0
    """Free and usable: no request waits, or it is kept for the growth of what runs."""

    @property
    def allocated(self) -> int:
        """Slots that requests hold."""
        return self.states + self.reserved + self.internal + self.rounding

    @property
    def total(self) -> int:
        """All slots."""
        return self.allocated + self.stranded + self.headroom

    @property
    def share_of_allocated(self) -> float:
        """Part of what is allocated that holds token states."""
        return self.states / self.allocated if self.allocated else 0.0

    def shares(self) -> dict[str, float]:
        """Each kind as a part of the whole memory; they add up to 1."""
        return {field.name: getattr(self, field.name) / self.total for field in fields(self)}

    def __add__(self, other: SlotUsage) -> SlotUsage:
        return SlotUsage(
            self.states + other.states,
            self.reserved + other.reserved,
            self.internal + other.internal,
            self.rounding + other.rounding,
            self.stranded + other.stranded,
            self.headroom + other.headroom,
        )


def held_usage(num_states: int, num_slots_at_end: int, num_asked: int, num_allocated: int) -> SlotUsage:
    """What one request holds, when it has ``num_states`` tokens and will have ``num_slots_at_end``.

    It asked for ``num_asked`` slots and got ``num_allocated``.
    """
    assert num_states <= num_asked <= num_allocated
    num_used_at_end = min(num_slots_at_end, num_asked)
    return SlotUsage(
        states=num_states,
        reserved=num_used_at_end - num_states,
        internal=num_asked - num_used_at_end,
        rounding=num_allocated - num_asked,
    )

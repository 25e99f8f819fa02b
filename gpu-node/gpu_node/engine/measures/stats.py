"""The state of an engine in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_node.engine.measures.counts import Counts
from shared.messages.nodes.step_cost import DecodeYield, StepCost


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine's state behind the event that carries it."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
    """Blocks that no sequence holds; some of them still hold prefixes that can be reused."""
    num_admittable: int
    """How many more requests the engine expects to be able to run now; pull no more than this."""
    step_s: float
    """Duration of the last step."""
    num_received: int = 0
    """`Run` commands read so far: what the agent has sent beyond these is not yet counted in ``num_admittable``."""
    kv_bytes_per_s: float = 0.0
    """Measured rate of moves between device and host memory; 0.0 before the first."""
    cost: StepCost | None = None
    """Of the current model on this device, as far as it has been learnt; None before any step and any profile."""
    decode: DecodeYield | None = None
    """Of the current model, likewise; None where no tokens are guessed, or too little has been seen."""
    swapped_kv_bytes: int = 0
    """Host memory that holds KV of preempted requests."""
    evicted_kv_bytes: int = 0
    """Host memory that holds KV of evicted ones."""
    host_kept_bytes: int = 0
    """Host memory that holds copies of full blocks."""
    store_bytes: int = 0
    """Room that they take in the store below it."""
    page_bytes: int = 0
    """Of the pages that it may lend to other engines; 0 where it lends none."""
    num_spare_pages: int = 0
    """That it could lend beside those that are lent: they are not held, and its own requests are not expected to."""
    num_missing_pages: int = 0
    """Of those that are lent, what its own requests are expected to need."""
    busy_s: float = 0.0
    """Of the device, in steps, since the engine began."""
    served_s: float = 0.0
    """Of these, what went to other engines' attention."""
    waited_s: float = 0.0
    """Of these, what went to waiting for a receiver."""
    counts: Counts = field(default_factory=Counts)
    num_remote_blocks: int = 0
    """Of the current model, that it may fill at a receiver: what is granted and not wanted back."""

"""Where KV blocks are kept below the device, in the standard library alone (as `shared.config.engines.engine`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from shared.config.bounds import STRICT, NumberRange

MIN_SSD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Tiers of an engine below its device: copies of full blocks in host memory, and on an SSD.

    What was computed once is so found again when its beginning comes back: a conversation's next turn, a document.
    """

    __pydantic_config__: ClassVar = STRICT

    host_bytes: Annotated[int, NumberRange(0)] = 0
    """Host memory for them, for each node, beside ``host_kv_bytes``; 0 keeps nothing below the device."""
    ssd_bytes: Annotated[int, NumberRange(0)] = 0
    """Room on an SSD for them, for each node; it is kept when the node ends, and found again when it starts."""
    ssd_folder: str | None = None
    """Where that is: each node has a folder of its name in it, which no other process may use."""

    def __post_init__(self) -> None:
        if problems := self._problems():
            raise ValueError("\n".join(problems))

    def _problems(self) -> list[str]:
        problems = []
        if self.ssd_bytes and self.ssd_folder is None:
            problems.append("ssd_folder: ssd_bytes needs it, the folder on the SSD that holds them")
        if self.ssd_folder is not None and not self.ssd_bytes:
            problems.append("ssd_bytes: ssd_folder needs it, the room that blocks may take there")
        if 0 < self.ssd_bytes < MIN_SSD_BYTES:
            problems.append(f"ssd_bytes: {self.ssd_bytes} is less than the least, {MIN_SSD_BYTES}")
        if self.ssd_bytes and not self.host_bytes:
            problems.append("host_bytes: ssd_bytes needs it, since blocks go through host memory to the SSD and back")
        return problems


NO_TIERS = TierOptions()
"""Nothing is kept below the device."""

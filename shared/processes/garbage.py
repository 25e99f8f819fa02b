"""When Python looks for cycles of objects that are not needed any more: it stops the process, so seldom and little.

Most objects go when the last reference does. The collector finds the rest, and a full run looks at all there are: at a
gateway with 4,000 requests in flight these are half a million, a quarter of a second on a busy core, and by Python's
own measure such a run comes with each thousand requests; at an engine with 300 sequences in its steps it took .13 s
after each 150 of them.
"""

from __future__ import annotations

import gc

# A run over the young looks at 2,000 objects, one over those that survived it at 10,000 (some 30 ms on a busy core),
# and a full one comes when five million more have been made than were freed: after tens of thousands of requests. What
# it would find until then are cycles that lived through both of the others, which are few.
THRESHOLDS = (2_000, 5, 500)


def settle() -> None:
    """Set aside what the process has loaded and will always need, and have full runs be seldom from now on."""
    gc.unfreeze()  # what an earlier call set aside may be cycles by now
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
